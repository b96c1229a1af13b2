"""One device or rank: turns a StepPlan into logits and a SamplePlan into tokens."""
