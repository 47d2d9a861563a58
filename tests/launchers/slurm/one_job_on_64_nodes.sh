#!/bin/bash
#SBATCH --job-name=fake
#SBATCH --nodes=64
#SBATCH --ntasks=512
#SBATCH --ntasks-per-node=8
#SBATCH --no-requeue
#SBATCH --output=/shared/c/slurm/%j.out
#SBATCH --partition=gpu
#SBATCH --account=bench
#SBATCH --cpus-per-task=12
#SBATCH --time=2:00:00
#SBATCH --gres=gpu:8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --constraint=a100

export PYTHONSAFEPATH=1
exec python -m train_bench run resume=/shared/c 'only=[0,1,2,3,4]'
