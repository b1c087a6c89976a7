# An MLflow server that speaks PostgreSQL and S3, at the version that is tested.
#
#   docker build -f deploy/images/mlflow.Dockerfile -t REGISTRY/elsa-tune-mlflow:0.1.0 .
FROM python:3.11-slim

COPY constraints.txt /constraints.txt
RUN pip install --no-cache-dir -c /constraints.txt mlflow "psycopg[binary]" boto3

RUN useradd --create-home --uid 1000 mlflow
USER mlflow
WORKDIR /home/mlflow
