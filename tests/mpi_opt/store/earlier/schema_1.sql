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
INSERT INTO "attempts" VALUES(1000000000,1,0,'0','node1','2026-11-27T13:33:34.631761+00:00','2026-11-27T13:33:34.634143+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000001,1,0,'0','node1','2026-11-27T13:33:34.672587+00:00','2026-11-27T13:33:34.673188+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000002,1,0,'0','node1','2026-11-27T13:33:34.684275+00:00','2026-11-27T13:33:34.684729+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000003,1,0,'0','node1','2026-11-27T13:33:34.697600+00:00','2026-11-27T13:33:34.698082+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000004,1,0,'0','node1','2026-11-27T13:33:34.710181+00:00','2026-11-27T13:33:34.711034+00:00','failed','rank 0 on node1: ValueError: no memory
Traceback (most recent call last):
  File "/home/ada/mpi_opt/mpi_opt/block.py", line 167, in _run_fold
    value, history = self.objective(trial)
                     ^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/mpi_opt/mpi_opt/objective.py", line 68, in __call__
    return self.function(trial), None
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/old/../make.py", line 4, in objective
    if trial.number == 4: raise ValueError("no memory")
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: no memory');
INSERT INTO "attempts" VALUES(1000000005,1,0,'0','node1','2026-11-27T13:33:34.724496+00:00','2026-11-27T13:33:34.724924+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000006,1,0,'0','node1','2026-11-27T13:33:34.740223+00:00','2026-11-27T13:33:34.740716+00:00','complete',NULL);
INSERT INTO "attempts" VALUES(1000000007,1,0,'0','node1','2026-11-27T13:33:34.752539+00:00',NULL,NULL,NULL);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	at VARCHAR(32) NOT NULL, 
	kind VARCHAR(64) NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
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
INSERT INTO "folds" VALUES(1000000000,0,2.30177232257277388774e+01,6.24340000285883434116e-05);
INSERT INTO "folds" VALUES(1000000000,1,2.31177232257277402997e+01,8.33200010674772784113e-06);
INSERT INTO "folds" VALUES(1000000001,0,4.15557744711142191835e+01,5.96400004724273458123e-05);
INSERT INTO "folds" VALUES(1000000001,1,4.16557744711142206037e+01,4.83619996884954161942e-05);
INSERT INTO "folds" VALUES(1000000002,0,4.2328597875402627082e+00,5.36309999006334692239e-05);
INSERT INTO "folds" VALUES(1000000002,1,4.33285978754026235293e+00,8.30299995868699625134e-06);
INSERT INTO "folds" VALUES(1000000003,0,39.945428616548,5.24690003658179193735e-05);
INSERT INTO "folds" VALUES(1000000003,1,40.045428616548,1.18080006359377875924e-05);
INSERT INTO "folds" VALUES(1000000005,0,2.78606519496619284845e+01,4.99450006827828474342e-05);
INSERT INTO "folds" VALUES(1000000005,1,2.79606519496619299047e+01,7.32099942979402840137e-06);
INSERT INTO "folds" VALUES(1000000006,0,5.64399785926450281436e+00,4.78219999422435648739e-05);
INSERT INTO "folds" VALUES(1000000006,1,5.74399785926450245909e+00,7.08999959897482767701e-06);
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
INSERT INTO "schema_version" VALUES(1);
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
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "studies" VALUES(1,'old','minimize','random',3,'2026-11-27T13:33:34.473251+00:00','{"study": "old", "store": "sqlite:///old.db", "direction": "minimize", "objective": "objective", "space": {"x": {"type": "real", "low": -5.0, "high": 10.0, "prior": "uniform"}, "kind": {"type": "categorical", "categories": ["sgd", "adam"]}, "momentum": {"type": "real", "low": 0.0, "high": 0.9, "prior": "uniform", "when": {"kind": "sgd"}}}, "search": {"strategy": "random", "trials": 12, "seed": 3, "options": {}, "target": null, "time_limit": null}, "blocks": {"size": 1, "spares": 0}, "folds": 2, "trial": {"retries": 1, "timeout": null}}','{"x": {"type": "real", "low": -5.0, "high": 10.0, "prior": "uniform"}, "kind": {"type": "categorical", "categories": ["sgd", "adam"]}, "momentum": {"type": "real", "low": 0.0, "high": 0.9, "prior": "uniform", "when": {"kind": "sgd"}}}','study_old');
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
	PRIMARY KEY (id), 
	UNIQUE (study_id, number), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "trials" VALUES(1000000000,1,0,'complete',2.30677232257277395896e+01,5.00000000000007105427e-02,'{"x": 6.7452843145303465, "kind": "adam"}','2026-11-27T13:33:34.631761+00:00','2026-11-27T13:33:34.634143+00:00',1.07130999822402372956e-04,1,NULL,NULL,NULL,0);
INSERT INTO "trials" VALUES(1000000001,1,1,'complete',4.16057744711142163396e+01,5.00000000000007105427e-02,'{"x": 8.436007444912144, "kind": "sgd", "momentum": 0.1335826401496715}','2026-11-27T13:33:34.672587+00:00','2026-11-27T13:33:34.673188+00:00',1.3923900041845627129e-04,1,NULL,NULL,NULL,1);
INSERT INTO "trials" VALUES(1000000002,1,2,'complete',4.28285978754026253056e+00,4.99999999999998223643e-02,'{"x": 3.9320610206565068, "kind": "adam"}','2026-11-27T13:33:34.684275+00:00','2026-11-27T13:33:34.684729+00:00',9.15179998628445900976e-05,1,NULL,NULL,NULL,2);
INSERT INTO "trials" VALUES(1000000003,1,3,'complete',39.995428616548,5.00000000000007105427e-02,'{"x": -4.281123383103508, "kind": "sgd", "momentum": 0.4929176627783388}','2026-11-27T13:33:34.697600+00:00','2026-11-27T13:33:34.698082+00:00',9.58040000114124268293e-05,1,NULL,NULL,NULL,3);
INSERT INTO "trials" VALUES(1000000004,1,4,'failed',NULL,NULL,'{"x": 1.649774725676468, "kind": "adam"}','2026-11-27T13:33:34.710181+00:00','2026-11-27T13:33:34.711034+00:00',6.08944000305200461298e-04,1,'rank 0 on node1: ValueError: no memory
Traceback (most recent call last):
  File "/home/ada/mpi_opt/mpi_opt/block.py", line 167, in _run_fold
    value, history = self.objective(trial)
                     ^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/mpi_opt/mpi_opt/objective.py", line 68, in __call__
    return self.function(trial), None
           ^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/old/../make.py", line 4, in objective
    if trial.number == 4: raise ValueError("no memory")
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: no memory',NULL,NULL,4);
INSERT INTO "trials" VALUES(1000000005,1,5,'complete',2.79106519496619291946e+01,5.00000000000007105427e-02,'{"x": -3.26079956346548, "kind": "sgd", "momentum": 0.18463990270334255}','2026-11-27T13:33:34.724496+00:00','2026-11-27T13:33:34.724924+00:00',7.76360002419096417725e-05,1,NULL,NULL,NULL,5);
INSERT INTO "trials" VALUES(1000000006,1,6,'complete',5.69399785926450263673e+00,4.99999999999998223643e-02,'{"x": -0.3387557210973764, "kind": "sgd", "momentum": 0.17421953629879375}','2026-11-27T13:33:34.740223+00:00','2026-11-27T13:33:34.740716+00:00',7.69159996707458e-05,1,NULL,NULL,NULL,6);
INSERT INTO "trials" VALUES(1000000007,1,7,'running',NULL,NULL,'{"x": -0.37909212361433653, "kind": "sgd", "momentum": 0.6870340006979205}','2026-11-27T13:33:34.752539+00:00',NULL,NULL,1,NULL,NULL,NULL,NULL);
CREATE INDEX trials_by_merit ON trials (study_id, state, figure_of_merit);
CREATE INDEX ix_events_study_id ON events (study_id);
CREATE VIEW study_old AS SELECT number, state, figure_of_merit, uncertainty, duration_s, json_extract(parameters, '$."x"') AS x, json_extract(parameters, '$."kind"') AS kind, json_extract(parameters, '$."momentum"') AS momentum FROM trials WHERE study_id = 1;
COMMIT;
