"""Logs models with MLflow's own client, and prints where they are as JSON. Run by the Python of .cache/venv-mlflow, with the
server's address and a folder: DEMO's files in a folder as the transformers flavor lays it out are in FOLDER/chat, a plain
one is in FOLDER/plain."""
import json
import sys

import mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput


class Pickled(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input):
        return model_input


uri, folder = sys.argv[1:3]
mlflow.set_tracking_uri(uri)
client = MlflowClient()
with mlflow.start_run() as run:
    mlflow.log_artifacts(f"{folder}/plain", "deep/plain")
    logged = client.create_logged_model(run.info.experiment_id, name="chat", source_run_id=run.info.run_id)
    client.log_model_artifacts(logged.model_id, f"{folder}/chat")
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run.info.run_id, [LoggedModelOutput(logged.model_id, 0)])
    pickled = mlflow.pyfunc.log_model(name="pickled", python_model=Pickled(), pip_requirements=[])
mlflow.register_model(f"models:/{logged.model_id}", "the demo")
client.create_model_version("the demo", f"{run.info.artifact_uri}/deep/plain", run.info.run_id)
client.set_registered_model_alias("the demo", "champion", "1")
client.create_registered_model("local")
print(json.dumps({"run": run.info.run_id, "logged": logged.model_id, "pickled": pickled.model_id,
                  "uri": client.get_logged_model(logged.model_id).artifact_location}))
