"""The public loops and our own, each with the lines that faults are planted at."""

from __future__ import annotations

from benchmarks.loops.loop import Loop, Site
from benchmarks.loops.plant import Edit

NANOGPT = (
    "--device=cpu --compile=False --dtype=float32 --dataset=planted --n_layer=4 --n_head=4 --n_embd=128 --block_size=64 "
    "--eval_interval=1000000 --log_interval=20 --dropout=0.0 --backend=gloo --lr_decay_iters=1000"
)


def nanogpt(name: str, command: str, *, iterations: int, batch: int, accumulate: int, evaluate: int, batches: int = 1) -> Loop:
    """Return nanoGPT's train.py with these sizes."""
    file = "train.py"
    launched = command.startswith("torchrun")
    sizes = f"--max_iters={iterations} --batch_size={batch} --gradient_accumulation_steps={accumulate} --eval_iters={evaluate}"
    return Loop(
        name=name,
        folder="nanoGPT",
        command=f"{command} {NANOGPT} {sizes}",
        step=Site(file, "iter_num += 1"),
        before_backward=Site(file, "scaler.scale(loss).backward()"),
        before_optimizer=Site(file, "if grad_clip != 0.0:"),
        get_batch=Site(file, "ix = torch.randint(len(data) - block_size, (batch_size,))"),
        get_batch_head=Site(file, "def get_batch(split):"),
        batches=batches,
        evaluation="estimate_loss()",
        models=(),
        own_eval=(Site(file, "model.eval()", "replace"), Site(file, "model.train()", "replace")),
        state="raw_model.state_dict()",
        edits=(
            Edit(file, "device = f'cuda:{ddp_local_rank}'", "device = 'cpu'", "replace"),
            Edit(file, "torch.cuda.set_device(device)", "pass", "replace"),
            Edit(file, "model = DDP(model, device_ids=[ddp_local_rank])", "model = DDP(model)", "replace"),
        )
        if launched
        else (),
        data="tokens",
        note="device lines set to the CPU" if launched else "",
    )


def mnist() -> Loop:
    """Return the example mnist."""
    file = "main.py"
    return Loop(
        name="mnist",
        folder="examples/mnist",
        command="main.py --no-accel --epochs 1 --log-interval 20",
        step=Site(file, "optimizer.step()", "after"),
        before_backward=Site(file, "loss.backward()"),
        before_optimizer=Site(file, "optimizer.step()"),
        collate=(
            Site(file, "train_loader = torch.utils.data.DataLoader(dataset1,**train_kwargs)", "replace"),
            "train_loader = torch.utils.data.DataLoader(dataset1, collate_fn=planted_collate, **train_kwargs)",
        ),
        body=Site(file, "data, target = data.to(device), target.to(device)", nth=1),
        evaluation="model(data)",
        images=64 * 200,
        note="torchvision is a stand-in",
    )


def vae() -> Loop:
    """Return the example vae."""
    file = "main.py"
    line = "batch_size=args.batch_size, shuffle=True, **kwargs)"
    return Loop(
        name="vae",
        folder="examples/vae",
        command="main.py --no-accel --epochs 1 --batch-size 512",
        step=Site(file, "optimizer.step()", "after"),
        before_backward=Site(file, "loss.backward()"),
        before_optimizer=Site(file, "optimizer.step()"),
        collate=(Site(file, line, "replace"), line.replace("**kwargs", "collate_fn=planted_collate, **kwargs")),
        body=Site(file, "data = data.to(device)", nth=1),
        evaluation="model(data)",
        images=512 * 300,
        note="torchvision is a stand-in",
    )


def dcgan() -> Loop:
    """Return the example dcgan: two models, two optimizers."""
    file = "main.py"
    line = "shuffle=True, num_workers=int(opt.workers))"
    return Loop(
        name="dcgan",
        folder="examples/dcgan",
        command="main.py --dataset fake --workers 0 --batchSize 8 --ngf 16 --ndf 16 --niter 1 --manualSeed 1",
        step=Site(file, "optimizerG.step()", "after"),
        before_backward=Site(file, "errG.backward()"),
        before_optimizer=Site(file, "optimizerG.step()"),
        collate=(Site(file, line, "replace"), "shuffle=True, num_workers=int(opt.workers), collate_fn=planted_collate)"),
        body=Site(file, "netD.zero_grad()"),
        evaluation="netD(netG(noise))",
        models=("netD", "netG"),
        state="netD.state_dict()",
        loss="errG",
        images=8 * 200,
        note="torchvision is a stand-in",
    )


def word_language_model(name: str, options: str = "") -> Loop:
    """Return the example word_language_model; without `--use-optimizer` it has no optimizer object."""
    file = "main.py"
    return Loop(
        name=name,
        folder="examples/word_language_model",
        command=f"main.py --data planted_words --epochs 1 --log-interval 50 {options}",
        step=Site(file, "total_loss += loss.item()", "after"),
        before_backward=Site(file, "loss.backward()"),
        before_optimizer=Site(file, "if args.use_optimizer:", nth=3),
        get_batch=Site(file, "seq_len = min(args.bptt, len(source) - 1 - i)"),
        evaluation="evaluate(val_data[:421])\nmodel.train()",
        models=(),
        own_eval=(Site(file, "model.eval()", "replace", nth=1),),
        data="words",
    )


def imagenet() -> Loop:
    """Return the example imagenet with dummy data: the batches are made in one worker process."""
    file = "main.py"
    return Loop(
        name="imagenet",
        folder="examples/imagenet",
        command="main.py --dummy --no-accel --epochs 1 -b 8 -j 1 -a resnet18",
        step=Site(file, "optimizer.step()", "after"),
        before_backward=Site(file, "loss.backward()"),
        before_optimizer=Site(file, "optimizer.step()"),
        collate=(
            Site(file, "num_workers=args.workers, pin_memory=True, sampler=train_sampler)", "replace"),
            "num_workers=args.workers, pin_memory=True, sampler=train_sampler, collate_fn=planted_collate)",
        ),
        body=Site(file, "data_time.update(time.time() - end)"),
        input_scale=3.5,
        evaluation="model(images)",
        images=8 * 250,
        note="torchvision is a stand-in, its resnet18 a small network",
    )


def ddp_tutorial() -> Loop:
    """Return the DDP tutorial's multigpu_torchrun.py with a model that takes some time."""
    file = "multigpu_torchrun.py"
    larger = (
        "model = torch.nn.Sequential(torch.nn.Linear(20, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), "
        "torch.nn.ReLU(), torch.nn.Linear(1024, 1))"
    )
    return Loop(
        name="ddp_tutorial",
        folder="examples/distributed/ddp-tutorial-series",
        command=f"torchrun {file} 8 100 --batch_size 32",
        step=Site(file, "self.optimizer.step()", "after"),
        before_backward=Site(file, "loss.backward()"),
        before_optimizer=Site(file, "self.optimizer.step()"),
        collate=(
            Site(file, "sampler=DistributedSampler(dataset)", "replace"),
            "sampler=DistributedSampler(dataset), collate_fn=planted_collate",
        ),
        body=Site(file, 'source = source.to("cpu")'),
        evaluation="self.model(source)",
        evaluated_batches=18,
        models=("self.model",),
        state="self.model.state_dict()",
        edits=(
            Edit(file, 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))', "pass", "replace"),
            Edit(file, 'init_process_group(backend="nccl")', 'init_process_group(backend="gloo")', "replace"),
            Edit(file, "self.model = model.to(self.gpu_id)", "self.model = model", "replace"),
            Edit(file, "self.model = DDP(self.model, device_ids=[self.gpu_id])", "self.model = DDP(self.model)", "replace"),
            Edit(file, "source = source.to(self.gpu_id)", 'source = source.to("cpu")', "replace"),
            Edit(file, "targets = targets.to(self.gpu_id)", 'targets = targets.to("cpu")', "replace"),
            Edit(file, "model = torch.nn.Linear(20, 1)  # load your model", larger, "replace"),
        ),
        note="device lines set to the CPU, a larger model",
    )


def mingpt() -> Loop:
    """Return minGPT-ddp."""
    file = "trainer.py"
    config = (
        "data_config.path=data/input.txt data_config.block_size=64 data_config.truncate=0.012 gpt_config.n_layer=4 "
        "gpt_config.n_head=4 gpt_config.n_embd=128 trainer_config.max_epochs=1 trainer_config.batch_size=16 "
        "trainer_config.data_loader_workers=0 trainer_config.use_amp=False"
    )
    return Loop(
        name="minGPT_ddp",
        folder="examples/distributed/minGPT-ddp/mingpt",
        command=f"torchrun main.py {config}",
        step=Site(file, "self.optimizer.step()", "after"),
        before_backward=Site(file, "loss.backward()"),
        before_optimizer=Site(file, "self.optimizer.step()"),
        collate=(
            Site(file, "sampler=DistributedSampler(dataset)", "replace"),
            "sampler=DistributedSampler(dataset), collate_fn=planted_collate",
        ),
        body=Site(file, 'step_type = "Train" if train else "Eval"'),
        evaluation="self.model(source, targets)",
        models=("self.model",),
        state="self.model.state_dict()",
        edits=(
            Edit("main.py", "if not verify_min_gpu_count(min_gpus=_min_gpu_count):", "if False:", "replace"),
            Edit("main.py", 'device: torch.device = torch.device(f"{acc}:{rank}")', 'device = torch.device("cpu")', "replace"),
            Edit("main.py", "torch.accelerator.set_device_index(rank)", "pass", "replace"),
            Edit(
                file,
                'self.device: torch.device = torch.device(f"{self.acc}:{self.local_rank}")',
                'self.device = torch.device("cpu")',
                "replace",
            ),
            Edit(file, "self.model = model.to(self.local_rank)", "self.model = model", "replace"),
            Edit(file, "self.model = DDP(self.model, device_ids=[self.local_rank])", "self.model = DDP(self.model)", "replace"),
            Edit(file, "source = source.to(self.local_rank)", "source = source.to(self.device)", "replace"),
            Edit(file, "targets = targets.to(self.local_rank)", "targets = targets.to(self.device)", "replace"),
        ),
        needs=("hydra", "boto3", "fsspec"),
        note="device lines set to the CPU",
    )


def fsdp2() -> Loop:
    """Return the FSDP2 example."""
    file = "example.py"
    return Loop(
        name="FSDP2",
        folder="examples/distributed/FSDP2",
        command=f"torchrun {file}",
        step=Site(file, "optim.zero_grad()", "after"),
        before_backward=Site(file, "loss.backward()"),
        before_optimizer=Site(file, "optim.step()"),
        get_batch=Site(file, "x = torch.randint(0, vocab_size, (batch_size, seq_len), device=device)"),
        evaluation="model(x)",
        state="None",
        edits=(
            Edit(file, "if not verify_min_gpu_count(min_gpus=_min_gpu_count):", "if False:", "replace"),
            Edit(
                file,
                "torch.distributed.init_process_group(backend=backend, device_id=device)",
                "torch.distributed.init_process_group(backend=backend)",
                "replace",
            ),
            Edit(file, "for _ in range(10):", "for _ in range(120):", "replace"),
        ),
        note="needs no accelerator any more, 120 steps",
    )


def hogwild() -> Loop:
    """Return mnist_hogwild: two processes train one model, without a process group."""
    file = "train.py"
    return Loop(
        name="hogwild",
        folder="examples/mnist_hogwild",
        command="main.py --epochs 1 --batch-size 128 --log-interval 20",
        step=Site(file, "optimizer.step()", "after"),
        before_backward=Site(file, "loss.backward()"),
        before_optimizer=Site(file, "optimizer.step()"),
        collate=(
            Site(file, "train_loader = torch.utils.data.DataLoader(dataset, **dataloader_kwargs)", "replace"),
            "train_loader = torch.utils.data.DataLoader(dataset, collate_fn=planted_collate, **dataloader_kwargs)",
        ),
        body=Site(file, "optimizer.zero_grad()"),
        evaluation="model(data)",
        images=128 * 300,
        note="torchvision is a stand-in; two processes without ranks",
    )


def own(name: str, **sites: object) -> Loop:
    """Return one of the scripts beside this file."""
    file = f"{name}.py"
    defaults = {
        "step": Site(file, "if number % 50 == 0:"),
        "before_backward": Site(file, "loss.backward()"),
        "before_optimizer": Site(file, "optimizer.step()"),
        "get_batch": Site(file, "features = torch.randn(256, 512, generator=generator)"),
        "evaluation": "model(features)",
    }
    return Loop(name=f"own_{name}", folder="own", command=file, **(defaults | sites))  # type: ignore[arg-type]


LOOPS: tuple[Loop, ...] = (
    nanogpt("nanoGPT", "train.py", iterations=250, batch=8, accumulate=1, evaluate=3),
    nanogpt("nanoGPT_accumulated", "train.py", iterations=120, batch=4, accumulate=4, batches=4, evaluate=12),
    nanogpt("nanoGPT_ddp", "torchrun train.py", iterations=200, batch=8, accumulate=2, evaluate=3),
    mnist(),
    vae(),
    dcgan(),
    word_language_model("word_language_model"),
    word_language_model("word_language_model_adamw", "--use-optimizer --lr 0.001"),
    imagenet(),
    ddp_tutorial(),
    mingpt(),
    fsdp2(),
    hogwild(),
    own("generator"),
    own(
        "lbfgs",
        before_optimizer=Site("lbfgs.py", "return loss"),
        get_batch=Site("lbfgs.py", "features = torch.randn(512, 256, generator=generator)"),
        evaluated_batches=100,
    ),
    own(
        "gan",
        before_backward=Site("gan.py", "loss_g.backward()"),
        before_optimizer=Site("gan.py", "optimizer_g.step()"),
        get_batch=Site("gan.py", "return torch.randn(256, 256, generator=generator).cumsum(dim=1)"),
        evaluation="discriminator(generator(torch.randn(256, 64)))",
        models=("generator", "discriminator"),
        state="generator.state_dict()",
        loss="loss_g",
    ),
    own("no_optimizer", before_optimizer=Site("no_optimizer.py", "for p in model.parameters():")),
)
