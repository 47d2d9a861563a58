#!/bin/bash
#SBATCH --job-name=fake
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --no-requeue
#SBATCH --output=/shared/c/slurm/%j.out
#SBATCH --cpus-per-task=4
#SBATCH --exclusive
#SBATCH --mem=0

export PYTHONSAFEPATH=1
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --cpus-per-task=4 --output=/shared/c/slurm/%j_prolog_%N.out sh -c 'cp -r '"'"'/shared/d'"'"' /local' || { echo 'launcher.prolog failed; its output is in /shared/c/slurm' >&2; exit 1; }
trap 'kill -TERM $(jobs -p)' HUP TERM USR1 USR2
python -m train_bench run resume=/shared/c 'only=[0,1,2,3,4]' & processes+=($!)
code=0
for process in "${processes[@]}"; do while kill -0 "$process" 2> /dev/null; do wait "$process"; done; wait "$process"; last=$?; [ $last = 0 ] || [ $code = 75 ] || code=$last; done
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --cpus-per-task=4 --output=/shared/c/slurm/%j_epilog_%N.out sh -c 'rm -r /local/d' || { echo 'launcher.epilog failed; its output is in /shared/c/slurm' >&2; [ $code = 75 ] || code=1; }
exit $code
