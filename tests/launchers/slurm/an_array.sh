#!/bin/bash
#SBATCH --job-name=fake
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --no-requeue
#SBATCH --output=/shared/c/slurm/%A_%a.out
#SBATCH --array=0,1,2,3,4%3

export PYTHONSAFEPATH=1
trap 'kill -TERM $(jobs -p)' HUP TERM USR1 USR2
python -m train_bench run resume=/shared/c "only=[$SLURM_ARRAY_TASK_ID]" & processes+=($!)
code=0
for process in "${processes[@]}"; do while kill -0 "$process" 2> /dev/null; do wait "$process"; done; wait "$process"; last=$?; [ $last = 0 ] || [ $code = 75 ] || code=$last; done
if [ $code != 0 ] && [ $code != 75 ]; then scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"; fi
exit $code
