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
INSERT INTO "attempts" VALUES(1000000000,1,0,'0','node1','2026-11-27T13:33:46.168531+00:00','2026-11-27T13:33:46.171140+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000001,1,0,'0','node1','2026-11-27T13:33:46.197103+00:00','2026-11-27T13:33:46.197989+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000002,1,0,'0','node1','2026-11-27T13:33:46.219137+00:00','2026-11-27T13:33:46.219728+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000003,1,0,'0','node1','2026-11-27T13:33:46.229397+00:00','2026-11-27T13:33:46.229929+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000004,1,0,'0','node1','2026-11-27T13:33:46.236769+00:00','2026-11-27T13:33:46.237708+00:00','failed','rank 0 on node1: ValueError: no memory
Traceback (most recent call last):
  File "/home/ada/mpi_opt/mpi_opt/worker/block.py", line 142, in _run_fold
    value, history = self.objective(trial)
                     ^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/mpi_opt/mpi_opt/worker/objective.py", line 49, in __call__
    return self.function(trial), None
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/old/../make.py", line 4, in objective
    if trial.number == 4: raise ValueError("no memory")
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: no memory');
INSERT INTO "attempts" VALUES(1000000005,1,0,'0','node1','2026-11-27T13:33:46.250902+00:00','2026-11-27T13:33:46.251405+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000006,1,0,'0','node1','2026-11-27T13:33:46.271083+00:00','2026-11-27T13:33:46.271612+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000007,1,0,'0','node1','2026-11-27T13:33:46.286019+00:00',NULL,NULL,NULL);
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
INSERT INTO "folds" VALUES(1000000000,0,2.30177232257277388774e+01,2.11427000067487824708e-04);
INSERT INTO "folds" VALUES(1000000000,1,2.31177232257277402997e+01,1.24990001495461910963e-05);
INSERT INTO "folds" VALUES(1000000001,0,4.15557744711142191835e+01,1.74892999893927481025e-04);
INSERT INTO "folds" VALUES(1000000001,1,4.16557744711142206037e+01,1.84279997483827173709e-05);
INSERT INTO "folds" VALUES(1000000002,0,4.2328597875402627082e+00,0.000167971999871952);
INSERT INTO "folds" VALUES(1000000002,1,4.33285978754026235293e+00,1.04460004877182655036e-05);
INSERT INTO "folds" VALUES(1000000003,0,39.945428616548,1.52849000187416095286e-04);
INSERT INTO "folds" VALUES(1000000003,1,40.045428616548,1.65239998750621452927e-05);
INSERT INTO "folds" VALUES(1000000005,0,2.78606519496619284845e+01,1.53280000631639268249e-04);
INSERT INTO "folds" VALUES(1000000005,1,2.79606519496619299047e+01,9.46399995882529765367e-06);
INSERT INTO "folds" VALUES(1000000006,0,5.64399785926450281436e+00,1.39929999932064674794e-04);
INSERT INTO "folds" VALUES(1000000006,1,5.74399785926450245909e+00,9.00299983186414465308e-06);
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
INSERT INTO "schema_version" VALUES(2);
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
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "studies" VALUES(1,'old','minimize','random',3,'2026-11-27T13:33:46.018871+00:00','{"study": "old", "store": "sqlite:///old.db", "direction": "minimize", "selection": "mean", "objective": "objective", "space": {"x": {"type": "real", "low": -5.0, "high": 10.0, "prior": "uniform"}, "kind": {"type": "categorical", "categories": ["sgd", "adam"]}, "momentum": {"type": "real", "low": 0.0, "high": 0.9, "prior": "uniform", "when": {"kind": "sgd"}}}, "search": {"strategy": "random", "trials": 12, "seed": 3, "options": {}, "target": null, "time_limit": null, "transfer": null}, "blocks": {"size": 1, "spares": 0}, "folds": 2, "trial": {"retries": 1, "timeout": null}}','{"x": {"type": "real", "low": -5.0, "high": 10.0, "prior": "uniform"}, "kind": {"type": "categorical", "categories": ["sgd", "adam"]}, "momentum": {"type": "real", "low": 0.0, "high": 0.9, "prior": "uniform", "when": {"kind": "sgd"}}}','study_old','mean',NULL);
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
INSERT INTO "trials" VALUES(1000000000,1,0,'complete',2.30677232257277395896e+01,5.00000000000007105427e-02,'{"x": 6.7452843145303465, "kind": "adam"}','2026-11-27T13:33:46.168531+00:00','2026-11-27T13:33:46.171140+00:00',2.65779000073962379246e-04,1,NULL,NULL,NULL,0,NULL);
INSERT INTO "trials" VALUES(1000000001,1,1,'complete',4.16057744711142163396e+01,5.00000000000007105427e-02,'{"x": 8.436007444912144, "kind": "sgd", "momentum": 0.1335826401496715}','2026-11-27T13:33:46.197103+00:00','2026-11-27T13:33:46.197989+00:00',5.04627000736945774406e-04,1,NULL,NULL,NULL,1,NULL);
INSERT INTO "trials" VALUES(1000000002,1,2,'complete',4.28285978754026253056e+00,4.99999999999998223643e-02,'{"x": 3.9320610206565068, "kind": "adam"}','2026-11-27T13:33:46.219137+00:00','2026-11-27T13:33:46.219728+00:00',2.11577000300167128443e-04,1,NULL,NULL,NULL,2,NULL);
INSERT INTO "trials" VALUES(1000000003,1,3,'complete',39.995428616548,5.00000000000007105427e-02,'{"x": -4.281123383103508, "kind": "sgd", "momentum": 0.4929176627783388}','2026-11-27T13:33:46.229397+00:00','2026-11-27T13:33:46.229929+00:00',2.04566999855160247534e-04,1,NULL,NULL,NULL,3,NULL);
INSERT INTO "trials" VALUES(1000000004,1,4,'failed',NULL,NULL,'{"x": 1.649774725676468, "kind": "adam"}','2026-11-27T13:33:46.236769+00:00','2026-11-27T13:33:46.237708+00:00',6.7164800020691473037e-04,1,'rank 0 on node1: ValueError: no memory
Traceback (most recent call last):
  File "/home/ada/mpi_opt/mpi_opt/worker/block.py", line 142, in _run_fold
    value, history = self.objective(trial)
                     ^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/mpi_opt/mpi_opt/worker/objective.py", line 49, in __call__
    return self.function(trial), None
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/old/../make.py", line 4, in objective
    if trial.number == 4: raise ValueError("no memory")
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: no memory',NULL,NULL,4,NULL);
INSERT INTO "trials" VALUES(1000000005,1,5,'complete',2.79106519496619291946e+01,5.00000000000007105427e-02,'{"x": -3.26079956346548, "kind": "sgd", "momentum": 0.18463990270334255}','2026-11-27T13:33:46.250902+00:00','2026-11-27T13:33:46.251405+00:00',1.87140000889485236257e-04,1,NULL,NULL,NULL,5,NULL);
INSERT INTO "trials" VALUES(1000000006,1,6,'complete',5.69399785926450263673e+00,4.99999999999998223643e-02,'{"x": -0.3387557210973764, "kind": "sgd", "momentum": 0.17421953629879375}','2026-11-27T13:33:46.271083+00:00','2026-11-27T13:33:46.271612+00:00',1.72618999386031646281e-04,1,NULL,NULL,NULL,6,NULL);
INSERT INTO "trials" VALUES(1000000007,1,7,'running',NULL,NULL,'{"x": -0.37909212361433653, "kind": "sgd", "momentum": 0.6870340006979205}','2026-11-27T13:33:46.286019+00:00',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL);
CREATE INDEX trials_by_merit ON trials (study_id, state, figure_of_merit);
CREATE INDEX ix_events_study_id ON events (study_id);
CREATE VIEW study_old AS SELECT number, state, figure_of_merit, uncertainty, duration_s, json_extract(parameters, '$."x"') AS x, json_extract(parameters, '$."kind"') AS kind, json_extract(parameters, '$."momentum"') AS momentum FROM trials WHERE study_id = 1;
COMMIT;
