"""The workloads of SGLang's paper, each written twice: as a program of the language, and with the plain openai client.

`python -m benchmarks.paper` runs both side by side. workload.py says what a workload is, material.py where its texts
come from; few_shot.py, agents.py, thoughts.py and chats.py hold the workloads; plain.py is the client; systems.py runs
a workload on a system; results.py and __main__.py measure and tell.
"""
