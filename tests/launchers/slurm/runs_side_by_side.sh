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
TRAIN_BENCH_FIRST_NODE=0 python -m train_bench run resume=/shared/c 'only=[0,2,4]' & processes+=($!)
TRAIN_BENCH_FIRST_NODE=2 python -m train_bench run resume=/shared/c 'only=[1,3]' & processes+=($!)
code=0
for process in "${processes[@]}"; do while kill -0 "$process" 2> /dev/null; do wait "$process"; done; wait "$process"; last=$?; [ $last = 0 ] || [ $code = 75 ] || code=$last; done
exit $code
