#!/bin/bash
#SBATCH --job-name=fake
#SBATCH --nodes=4
#SBATCH --ntasks=16
#SBATCH --ntasks-per-node=4
#SBATCH --no-requeue
#SBATCH --output=/shared/c/slurm/%j.out
#SBATCH --exclusive
#SBATCH --mem=0

export PYTHONSAFEPATH=1
trap 'kill -TERM $(jobs -p)' HUP TERM USR1 USR2
TRAIN_BENCH_FIRST_NODE=0 python -m train_bench run resume=/shared/c 'only=[0,2,4]' &
TRAIN_BENCH_FIRST_NODE=2 python -m train_bench run resume=/shared/c 'only=[1,3]' &
code=0
for process in $(jobs -p); do wait "$process" || code=1; while kill -0 "$process" 2> /dev/null; do wait "$process"; done; done
exit $code
