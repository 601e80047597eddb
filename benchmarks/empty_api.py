"""An API that does nothing, on the libraries that this one stands on: what they hold by themselves.

python benchmarks/empty_api.py DATABASE REDIS
"""

import sys

import uvicorn
from celery import Celery
from fastapi import FastAPI
from sqlalchemy import create_engine, text


def main() -> None:
    """Until a signal ends it. Its only route asks the database for nothing and sends a task that nobody takes."""
    database, redis = sys.argv[1:]
    engine = create_engine(database)
    queue = Celery(broker=redis)
    app = FastAPI()

    @app.get("/")
    def nothing() -> None:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
        queue.send_task("nothing", queue="nobody")

    uvicorn.run(app, port=0, access_log=False)


if __name__ == "__main__":
    main()
