# Everything happens in one virtual environment, .venv; PYTHON chooses what it is made with.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo smoke test full check honesty gpu bench docs horovod deepspeed slurm-local slurm-local-stop clean

demo: .venv/installed       ## train the default benchmark five times, judge and score it
	$(BIN)/train-bench run benchmark=resnet_mini

smoke: .venv/installed      ## under a minute: imports, list, an epoch, judge, report
	$(BIN)/python bench/smoke.py

# Tests of a file share what takes long to make, so a file stays in one process.
# There are more threads than processors, so those that wait have to give way. TESTS adds options of pytest.
PYTEST = $(BIN)/python -m pytest -p no:cacheprovider --dist loadfile --no-loadscope-reorder --durations 15
test full: export OMP_NUM_THREADS := 1
test full: export OMP_WAIT_POLICY := PASSIVE

test: .venv/installed-dev   ## all tests but `full`, three files at a time
	$(PYTEST) --numprocesses 3 -m 'not full' $(TESTS)

full: .venv/installed-dev   ## networks at full size, whole campaigns, fitted models: they take gigabytes and minutes
	$(PYTEST) --numprocesses 2 -m full $(TESTS)

check: .venv/installed-dev  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

honesty: .venv/installed-dev  ## with permuted training labels no mini benchmark may reach its target
	$(BIN)/python bench/honesty.py

gpu: .venv/installed-dev    ## check a GPU of yours in 13 minutes; again to continue: gpu_check/gpu_check.md (MINUTES, PARTS)
	$(BIN)/train-bench gpu-check --minutes $(or $(MINUTES),13) $(if $(PARTS),--only $(PARTS))

bench: .venv/installed-dev  ## cost of the harness and of trackers, waiting for data, two ranks against one, starting
	$(BIN)/python bench/harness_overhead.py
	$(BIN)/python bench/harness_overhead.py 21 4 wandb tensorboard
	$(BIN)/python bench/own_trainer.py
	$(BIN)/python bench/input_pipeline.py
	$(BIN)/python bench/references.py bert
	$(BIN)/python bench/references.py dlrm
	$(BIN)/python bench/references.py gpt_oss_20b
	$(BIN)/python bench/references.py llama31_8b
	$(BIN)/python bench/references.py maskrcnn
	$(BIN)/python bench/references.py minigo
	$(BIN)/python bench/references.py resnet
	$(BIN)/python bench/references.py rnnt
	$(BIN)/python bench/references.py ssd
	$(BIN)/python bench/references.py unet3d
	$(BIN)/python bench/selfplay.py
	$(BIN)/python bench/history_speed.py
	$(BIN)/python bench/transducer_loss.py
	$(BIN)/python bench/scaling.py
	$(BIN)/python bench/profile_minis.py $$(mktemp -d)
	$(BIN)/python bench/starts.py
	$(BIN)/python bench/startup.py

docs: .venv-docs/installed  ## the documentation as a site, with search: site/index.html
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --quiet --site-dir site

horovod: .venv/installed    ## build Horovod against the installed torch, or take the build that was kept
	$(BIN)/python -m train_bench.launchers.horovod.build

deepspeed: .venv/installed  ## install DeepSpeed, which looks for torch then, and compile what it uses on CPUs
	$(BIN)/python -m pip install --constraint constraints.txt 'setuptools>=77' wheel
	$(BIN)/python -m pip install --constraint constraints.txt --no-build-isolation --editable '.[deepspeed]'
	DS_ACCELERATOR=cpu $(BIN)/python -c 'from deepspeed.comm.torch import build_shm_op; build_shm_op()'

slurm-local:                ## a Slurm of two nodes on this machine; needs root, slurm-wlm and munge
	@launchers/slurm/local.sh start

slurm-local-stop:           ## and away with it
	@launchers/slurm/local.sh stop

clean:
	rm -rf .venv .venv-docs site

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[references]'
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --constraint constraints.txt --editable '.[dev,joblib,kubernetes,submitit,tensorboard,wandb]'
	touch $@

.venv-docs/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --constraint constraints.txt --editable '.[docs]'
	touch $@
