"""Does a run that is killed again and again end with the same bits as one that is left alone?

    python benchmarks/kills.py FOLDER --kills 50 --json results/reliability/kills.json

FOLDER, which must be empty, gets two runs that checkpoint every step: `calm` is left alone,
`killed` is ended by SIGKILL at random moments and gone on with each time. What is compared is in
bytes: weights, their moving average, the optimiser, the selected weights, progress, and every
record but for its times.
"""

from __future__ import annotations

import argparse
import sys
from hashlib import sha256
from pathlib import Path

# The means are those of the test with 20 kills.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "training"))

import torch
from killing import killed, undisturbed
from measuring import about, write

from bayesdg.records import NoteRecord, StartRecord, read_records
from stories import run_folder, state_of


def digests(folder: Path) -> dict[str, str]:
    """sha256 of everything a run is made of, by name."""
    return {
        name: sha256(part if isinstance(part, bytes) else repr(part).encode()).hexdigest()
        for name, part in state_of(folder).items()
    }


def main() -> None:
    """Kill, compare, print, write; exit code 1 when the bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if any(arguments.folder.iterdir()):
        parser.error(f"{arguments.folder} is not empty")
    calm, disturbed = arguments.folder / "calm", arguments.folder / "killed"
    undisturbed(calm, arguments.steps)
    after = killed(disturbed, arguments.steps, arguments.kills, arguments.seed)
    if len(after) < arguments.kills:
        parser.error(f"the run was done after {len(after)} kills; give more --steps")
    records = read_records(run_folder(disturbed) / "records.jsonl")
    notes = [record.text for record in records if isinstance(record, NoteRecord)]
    left, right = digests(run_folder(calm)), digests(run_folder(disturbed))
    content = {
        **about("python benchmarks/kills.py FOLDER", torch.device("cpu")),
        "threads": 1,  # of each process that trains
        "steps": arguments.steps,
        "seed": arguments.seed,
        "kills": len(after),
        "newest_checkpoint_after_each_kill": after,
        "starts_recorded": sum(isinstance(record, StartRecord) for record in records),
        "writes_cut": sum("which a killed process left" in note for note in notes),
        "ends_without_a_goodbye_told": sum("without a goodbye" in note for note in notes),
        "all_bits_agree": left == right,
        "sha256": {"calm": left, "killed": right},
    }
    print(
        f"{len(after)} kills, {content['writes_cut']} of them in the middle of a checkpoint: "
        + ("all bits agree" if left == right else "THE BITS DIFFER")
    )
    if arguments.json:
        write(arguments.json, content)
    sys.exit(left != right)


if __name__ == "__main__":
    main()
