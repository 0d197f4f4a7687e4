"""Mistakes in a user's own configurations: a file in `conf`, its text, a command line, and what its error says."""

_STUDY = "# @package _global_\nstudy:\n  of: x\n"
_MEASURED = f"{_STUDY}  experiment: jaxattn.experiments.local.rate\n"

FILES = [
    ("experiment/mine.yaml", "a: [", "figures mine", r"conf/experiment/mine\.yaml, line 1: expected YAML, found"),
    ("experiment/mine.yaml", "a: [", "figures rate", r"conf/experiment/mine\.yaml, line 1: expected YAML, found"),
    ("experiment/mine.yaml", "a: [", "train experiment=mine", r"mine\.yaml, line 1: expected YAML, found"),
    ("experiment/mine.yaml", "a: \x01", "train experiment=mine", r"mine\.yaml: expected YAML, found"),
    ("experiment/mine.yaml", "a: 1", "figures mine", r"mine\.yaml: expected a part study that describes an experiment"),
    ("experiment/mine.yaml", "- 1", "figures mine", r"mine\.yaml: expected a part study that describes an experiment"),
    ("experiment/mine.yaml", "study: 3", "figures --help", r"mine\.yaml: expected a part study that describes an"),
    ("experiment/mine.yaml", f"{_STUDY}  nope: 3", "figures mine", r"mine\.yaml: expected a part study .*'nope'"),
    ("experiment/mine.yaml", f"{_STUDY}seeds: many", "train experiment=mine", "In 'experiment/mine': .*'many'"),
    ("experiment/mine.yaml", f"{_STUDY}nope: 3", "figures mine", "In 'experiment/mine': .* Key 'nope' not in"),
    ("experiment/mine.yaml", _MEASURED, "figures mine", r"mine: expected runs by name as study\.runs.*, found None"),
    ("experiment/mine.yaml", f"{_MEASURED}  runs: [1]", "figures mine", r"mine: expected runs by name .*, found \[1\]"),
    ("experiment/mine.yaml", f"{_MEASURED}  runs: {{a: 1}}", "figures mine", "mine: expected runs by name .*, found"),
    (
        "experiment/mine.yaml",
        f"{_MEASURED}  runs: {{'{{b}}': {{seeds: 3}}}}",
        "figures mine",
        r"\{b\}: expected keys that this run sets, \['seeds'\], found 'b'",
    ),
    (
        "experiment/mine.yaml",
        f"{_STUDY}  runs: {{a: {{seeds: 3}}}}",
        "figures mine",
        r"mine: expected a module with an EXPERIMENT as study\.experiment, found none",
    ),
    ("optimizer/mine.yaml", "", "which optimizer=mine", r"optimizer: expected a value with a _target_, found \{\}"),
    ("optimizer/mine.yaml", "a: [", "which optimizer=mine", r"optimizer/mine\.yaml, line 1: expected YAML"),
    ("optimizer/mine.yaml", "a: [", "which optimizer.nope=3", r"optimizer/mine\.yaml, line 1: expected YAML"),
    (
        "optimizer/mine.yaml",
        "_target_: nope.nope",
        "which optimizer=mine",
        r"optimizer\._target_: nope\.nope: expected",
    ),
    ("optimizer/mine.yaml", "", "which optimizer=min", r"optimizer: .* found min; did you mean mine\?"),
    ("optimiser/mine.yaml", "", "which optimiser=mine", "optimiser: expected one of jaxattn's groups.*mean optimizer"),
    ("config.yaml", "a: 1", "train", r"a: unknown key.*conf/config\.yaml is used in place of jaxattn's own"),
    ("config.yaml", "- 1", "figures rate", r"primary config.*conf/config\.yaml is used in place of jaxattn's own"),
]
