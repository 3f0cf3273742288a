"""Train on a folder DOMAIN/CLASS/IMAGE of your own, and ask about new pictures.

python examples/own_folder.py pictures sketch
"""

import sys

import bayesdg as bd

folder, target = sys.argv[1:]
settings = bd.preset("default", method="bil").replace(
    {
        "model.backbone": "small-cnn",  # "resnet18" for real pictures, with weights from its hub
        "data.image_size": 32,
        "training.steps": 200,
        "training.learning_rate": 1e-3,
    }
)
dataset = bd.load_dataset(folder, data=settings.data)
run = bd.train(dataset, settings, [target], out="runs")  # again: goes on, or is done
for result in run.evaluate(dataset):
    print(f"{result.role:7}{result.domain:20}accuracy {result.metrics['accuracy']:.3f}")

answer = run.predict(f"{folder}/{target}")  # a folder, files, PIL images, arrays, a DataLoader
for label, sure, unsure in list(
    zip(answer.labels, answer.probabilities.max(-1), answer.entropy, strict=True)
)[:5]:
    print(f"{dataset.classes[label]:20}{sure:6.1%}  {unsure:.2f} nats of uncertainty")
