"""Places that make a SpecError and that the table of this folder does not reach: which test makes each of them.

No command line reaches them without a real run, an artifact or a broken installation, or the part that owns them has a
table of its own.
"""

from __future__ import annotations

ELSEWHERE: dict[str, str] = {
    "cli/initialising.py:_init": "tests/initialise/test_init_file.py",
    "cli/initialising.py:_init#2": "tests/initialise/test_init_file.py",
    "cli/initialising.py:_init_folder": "tests/initialise/test_init_file.py",
    "cli/initialising.py:_read": "tests/initialise/test_init_file.py",
    "initialise/answers.py:parse_goal": "tests/initialise/test_init_file.py",
    "initialise/answers.py:parse_goal#2": "tests/initialise/test_init_file.py",
    "initialise/answers.py:check_name": "tests/initialise/test_init_file.py",
    "initialise/answers.py:check_options": "tests/initialise/test_init_file.py",
    "initialise/inspect_model.py:_read_config": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_read_json": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_read_json#2": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_standard_config": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_standard_config#2": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_standard_config#3": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_causal_class": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_embedding": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_embedding#2": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_pooling": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_pooling#2": "tests/initialise/test_init_inspect.py",
    "initialise/inspect_model.py:_refuse_prompts": "tests/initialise/test_init_inspect.py",
    "initialise/origin.py:resolve_origin": "tests/initialise/test_init_folder.py",
    "initialise/origin.py:parse_config": "tests/initialise/test_init_file.py",
    "initialise/origin.py:_from_hub": "tests/initialise/test_init_folder.py",
    "initialise/origin.py:_from_hub#2": "tests/initialise/test_init_folder.py",
    "initialise/origin.py:_from_package": "tests/initialise/test_init_folder.py",
    "initialise/origin.py:_from_folder": "tests/initialise/test_init_folder.py",
    "initialise/origin.py:_refuse_weightless": "tests/initialise/test_init_folder.py",
    "initialise/origin.py:_refuse_mute": "tests/initialise/test_init_folder.py",
    "initialise/origin.py:_refuse_unknown_sizes": "tests/initialise/test_init_folder.py",
    "initialise/origin.py:_refuse_unknown_architecture": "tests/initialise/test_init_folder.py",
    "initialise/staging.py:project_root": "tests/initialise/test_init_file.py",
    "initialise/staging.py:refuse_existing": "tests/initialise/test_init_file.py",
    "initialise/staging.py:refuse_wrong": "tests/initialise/test_init_file.py",
    "weights/headers.py:read_headers": "tests/initialise/test_init_inspect.py",
    "weights/headers.py:read_headers#2": "tests/initialise/test_init_inspect.py",
    "weights/headers.py:_header": "tests/initialise/test_init_inspect.py",
    "weights/headers.py:_header#2": "tests/initialise/test_init_inspect.py",
    "weights/headers.py:_header#3": "tests/initialise/test_init_inspect.py",
    "seeds/port.py:get_seed": "tests/seeds/test_seeds.py",
    "skills/assembler.py:_refuse_foreign_seams": "tests/skills/test_scaffolds.py",
    "skills/loader.py:load_scaffold": "tests/skills/test_scaffolds.py",
    "skills/loader.py:read_scaffold_file": "tests/skills/test_scaffolds.py",
    "skills/loader.py:read_scaffold_file#2": "tests/skills/test_scaffolds.py",
    "skills/scaffolds.py:compose_scaffold": "tests/skills/test_scaffolds.py",
    "skills/scaffolds.py:built_in_layers": "tests/skills/test_scaffolds.py",
    "skills/scaffolds.py:built_in_layers#2": "tests/skills/test_scaffolds.py",
    "skills/scaffolds.py:_parsed": "tests/skills/test_scaffolds.py",
    "weights/sources.py:build": "tests/weights/test_materialise.py",
}
"""place (`error_sites.Site.name`) -> test file"""
