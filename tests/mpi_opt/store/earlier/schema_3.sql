BEGIN TRANSACTION;
CREATE TABLE attempts (
	trial_id INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	block INTEGER NOT NULL, 
	ranks TEXT NOT NULL, 
	hosts TEXT NOT NULL, 
	started_at VARCHAR(32) NOT NULL, 
	finished_at VARCHAR(32), 
	outcome VARCHAR(8), 
	error TEXT, 
	PRIMARY KEY (trial_id, attempt), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
)
 WITHOUT ROWID

;
INSERT INTO "attempts" VALUES(1000000000,1,0,'0','node1','2026-11-27T13:33:57.885289+00:00','2026-11-27T13:33:57.925592+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000001,1,0,'0','node1','2026-11-27T13:33:57.937051+00:00','2026-11-27T13:33:57.937767+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000002,1,0,'0','node1','2026-11-27T13:33:57.938488+00:00','2026-11-27T13:33:57.940297+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000003,1,0,'0','node1','2026-11-27T13:33:57.950701+00:00','2026-11-27T13:33:57.961561+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000004,1,0,'0','node1','2026-11-27T13:33:57.964510+00:00','2026-11-27T13:33:57.976347+00:00','failed','rank 0 on node1: ValueError: no memory');
INSERT INTO "attempts" VALUES(1000000005,1,0,'0','node1','2026-11-27T13:33:57.980455+00:00','2026-11-27T13:33:57.996787+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000006,1,0,'0','node1','2026-11-27T13:33:57.999322+00:00','2026-11-27T13:33:57.999870+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000007,1,0,'0','node1','2026-11-27T13:33:58.002114+00:00',NULL,NULL,NULL);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
CREATE TABLE figures_of_merit (
	trial_id BIGINT NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	value FLOAT, 
	uncertainty FLOAT, 
	PRIMARY KEY (trial_id, name), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
);
CREATE TABLE fold_figures_of_merit (
	trial_id BIGINT NOT NULL, 
	fold INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	value FLOAT, 
	PRIMARY KEY (trial_id, fold, name), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
);
CREATE TABLE folds (
	trial_id INTEGER NOT NULL, 
	fold INTEGER NOT NULL, 
	figure_of_merit FLOAT, 
	duration_s FLOAT, 
	PRIMARY KEY (trial_id, fold), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
)
 WITHOUT ROWID

;
INSERT INTO "folds" VALUES(1000000000,0,2.30177232257277388774e+01,0.000161461999596213);
INSERT INTO "folds" VALUES(1000000000,1,2.31177232257277402997e+01,5.01659997098613530397e-05);
INSERT INTO "folds" VALUES(1000000001,0,4.15557744711142191835e+01,9.30200003494974225759e-05);
INSERT INTO "folds" VALUES(1000000001,1,4.16557744711142206037e+01,2.19329995161388069391e-05);
INSERT INTO "folds" VALUES(1000000002,0,4.2328597875402627082e+00,6.90429997121100313961e-05);
INSERT INTO "folds" VALUES(1000000002,1,4.33285978754026235293e+00,1.74659999174764379858e-05);
INSERT INTO "folds" VALUES(1000000003,0,39.945428616548,1.84026000169978942722e-04);
INSERT INTO "folds" VALUES(1000000003,1,40.045428616548,2.96540001727407798171e-05);
INSERT INTO "folds" VALUES(1000000005,0,2.78606519496619284845e+01,1.00371000371524132788e-04);
INSERT INTO "folds" VALUES(1000000005,1,2.79606519496619299047e+01,1.6455000150017440319e-05);
INSERT INTO "folds" VALUES(1000000006,0,5.64399785926450281436e+00,6.43470002614776603877e-05);
INSERT INTO "folds" VALUES(1000000006,1,5.74399785926450245909e+00,1.50120004036580212414e-05);
CREATE TABLE leases (
	study_id INTEGER NOT NULL, 
	token VARCHAR(32) NOT NULL, 
	host VARCHAR(255) NOT NULL, 
	machine VARCHAR(512) NOT NULL, 
	process BIGINT NOT NULL, 
	process_began BIGINT, 
	since VARCHAR(32) NOT NULL, 
	renewed_at VARCHAR(32) NOT NULL, 
	PRIMARY KEY (study_id), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "leases" VALUES(1,'109e6d206277b1c216341b1cfbb83078','node1','node1 00000000-0000-0000-0000-000000000000 pid:[4026531836]',1073741824,515650,'2026-11-27T13:33:57.754959+00:00','2026-11-27T13:33:57.754959+00:00');
CREATE TABLE metrics (
	trial_id INTEGER NOT NULL, 
	fold INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	value FLOAT, 
	PRIMARY KEY (trial_id, fold, epoch, name), 
	FOREIGN KEY(trial_id) REFERENCES trials (id)
)
 WITHOUT ROWID

;
INSERT INTO "metrics" VALUES(1000000000,0,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000000,0,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000000,1,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000000,1,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000001,0,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000001,0,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000001,1,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000001,1,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000002,0,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000002,0,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000002,1,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000002,1,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000003,0,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000003,0,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000003,1,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000003,1,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000005,0,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000005,0,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000005,1,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000005,1,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000006,0,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000006,0,1,'report',0.5);
INSERT INTO "metrics" VALUES(1000000006,1,0,'report',1.0);
INSERT INTO "metrics" VALUES(1000000006,1,1,'report',0.5);
CREATE TABLE schema_version (
	version INTEGER NOT NULL
);
INSERT INTO "schema_version" VALUES(3);
CREATE TABLE studies (
	id INTEGER NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	strategy VARCHAR(255) NOT NULL, 
	seed BIGINT NOT NULL, 
	created_at VARCHAR(32) NOT NULL, 
	configuration TEXT NOT NULL, 
	space TEXT NOT NULL, 
	view_name VARCHAR(255) NOT NULL, 
	selection VARCHAR(8) DEFAULT 'mean' NOT NULL, 
	merits TEXT, 
	n_ended INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "studies" VALUES(1,'old','minimize','random',3,'2026-11-27T13:33:57.713577+00:00','{"study": "old", "store": "sqlite:///old.db", "direction": "minimize", "figure_of_merit": "val_loss", "selection": "mean", "objective": "objective", "space": {"x": {"type": "real", "low": -5.0, "high": 10.0, "prior": "uniform"}, "kind": {"type": "categorical", "categories": ["sgd", "adam"]}, "momentum": {"type": "real", "low": 0.0, "high": 0.9, "prior": "uniform", "when": {"kind": "sgd"}}}, "search": {"strategy": "random", "trials": 12, "seed": 3, "options": {}, "time_limit": null, "target": null, "transfer": null}, "blocks": {"size": 1, "spares": 0}, "folds": 2, "trial": {"timeout": null, "retries": 1}, "track": null, "training": null, "directory": "/home/ada/old"}','{"x": {"type": "real", "low": -5.0, "high": 10.0, "prior": "uniform"}, "kind": {"type": "categorical", "categories": ["sgd", "adam"]}, "momentum": {"type": "real", "low": 0.0, "high": 0.9, "prior": "uniform", "when": {"kind": "sgd"}}}','study_old','mean',NULL,7);
CREATE TABLE transferred (
	study_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	parameters TEXT NOT NULL, 
	figure_of_merit FLOAT NOT NULL, 
	PRIMARY KEY (study_id, position), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
CREATE TABLE trials (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	state VARCHAR(8) NOT NULL, 
	figure_of_merit FLOAT, 
	uncertainty FLOAT, 
	parameters TEXT NOT NULL, 
	started_at VARCHAR(32), 
	finished_at VARCHAR(32), 
	duration_s FLOAT, 
	attempts INTEGER NOT NULL, 
	error TEXT, 
	budget FLOAT, 
	resume_from INTEGER, 
	ended INTEGER, 
	pareto INTEGER, 
	PRIMARY KEY (id), 
	UNIQUE (study_id, number), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "trials" VALUES(1000000000,1,0,'complete',2.30677232257277395896e+01,7.07106781186557509233e-02,'{"x": 6.7452843145303465, "kind": "adam"}','2026-11-27T13:33:57.885289+00:00','2026-11-27T13:33:57.925592+00:00',0.000269873999968695,1,NULL,NULL,NULL,0,NULL);
INSERT INTO "trials" VALUES(1000000001,1,1,'complete',4.16057744711142163396e+01,7.07106781186557509233e-02,'{"x": 8.436007444912144, "kind": "sgd", "momentum": 0.1335826401496715}','2026-11-27T13:33:57.937051+00:00','2026-11-27T13:33:57.937767+00:00',1.53470999975979793816e-04,1,NULL,NULL,NULL,1,NULL);
INSERT INTO "trials" VALUES(1000000002,1,2,'complete',4.28285978754026253056e+00,0.0707106781186545,'{"x": 3.9320610206565068, "kind": "adam"}','2026-11-27T13:33:57.938488+00:00','2026-11-27T13:33:57.940297+00:00',1.22374000056879594922e-04,1,NULL,NULL,NULL,2,NULL);
INSERT INTO "trials" VALUES(1000000003,1,3,'complete',39.995428616548,7.07106781186557509233e-02,'{"x": -4.281123383103508, "kind": "sgd", "momentum": 0.4929176627783388}','2026-11-27T13:33:57.950701+00:00','2026-11-27T13:33:57.961561+00:00',2.73259999630681704729e-04,1,NULL,NULL,NULL,3,NULL);
INSERT INTO "trials" VALUES(1000000004,1,4,'failed',NULL,NULL,'{"x": 1.649774725676468, "kind": "adam"}','2026-11-27T13:33:57.964510+00:00','2026-11-27T13:33:57.976347+00:00',6.54602000395243521779e-04,1,'rank 0 on node1: ValueError: no memory
Traceback (most recent call last):
  File "/home/ada/mpi_opt/mpi_opt/worker/block.py", line 137, in _run_fold
    value, history = self.objective(trial)
                     ^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/mpi_opt/mpi_opt/objectives/function_objective.py", line 28, in __call__
    return self.function(trial), None
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/old/../make.py", line 4, in objective
    if trial.number == 4: raise ValueError("no memory")
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: no memory',NULL,NULL,4,NULL);
INSERT INTO "trials" VALUES(1000000005,1,5,'complete',2.79106519496619291946e+01,7.07106781186557509233e-02,'{"x": -3.26079956346548, "kind": "sgd", "momentum": 0.18463990270334255}','2026-11-27T13:33:57.980455+00:00','2026-11-27T13:33:57.996787+00:00',0.000156734999109176,1,NULL,NULL,NULL,5,NULL);
INSERT INTO "trials" VALUES(1000000006,1,6,'complete',5.69399785926450263673e+00,0.0707106781186545,'{"x": -0.3387557210973764, "kind": "sgd", "momentum": 0.17421953629879375}','2026-11-27T13:33:57.999322+00:00','2026-11-27T13:33:57.999870+00:00',1.06218999462726060301e-04,1,NULL,NULL,NULL,6,NULL);
INSERT INTO "trials" VALUES(1000000007,1,7,'running',NULL,NULL,'{"x": -0.37909212361433653, "kind": "sgd", "momentum": 0.6870340006979205}','2026-11-27T13:33:58.002114+00:00',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL);
CREATE INDEX trials_by_ending ON trials (study_id, ended);
CREATE INDEX trials_by_merit ON trials (study_id, state, figure_of_merit);
CREATE INDEX ix_events_study_id ON events (study_id);
CREATE VIEW "study_old" AS SELECT number, state, figure_of_merit, uncertainty, duration_s, json_extract(parameters, '$."x"') AS "x", json_extract(parameters, '$."kind"') AS "kind", json_extract(parameters, '$."momentum"') AS "momentum" FROM trials WHERE study_id = 1;
COMMIT;
