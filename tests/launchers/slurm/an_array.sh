#!/bin/bash
#SBATCH --job-name=fake
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --no-requeue
#SBATCH --output=/shared/c/slurm/%A_%a.out
#SBATCH --array=0,1,2,3,4%3

export PYTHONSAFEPATH=1
exec python -m train_bench run resume=/shared/c "only=[$SLURM_ARRAY_TASK_ID]"
