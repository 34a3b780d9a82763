// Command init is the first process of a node. It runs in new mount, UTS, IPC and PID namespaces and in the node's
// network namespace. It sets them up according to a plan, starts the node's programs, and reaps orphans.
//
// When it is killed, the kernel kills all processes of the node and removes its mounts.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"

	"github.com/vicinity-proxy/vicinity/e2e/lab/node"
)

// The stages. A process that unshares its cgroup namespace is in the new one only after an exec, because the kernel
// moves one thread and not the process.
const (
	stageJoin = "join"
	stageRun  = "run"
)

// The main goroutine stays on the process's first thread. The signal that ends a node together with its keeper is bound
// to that thread, and execve(2) keeps the thread that calls it (prctl(2), PR_SET_PDEATHSIG).
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // only init certainly runs on the first thread

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintf(os.Stderr, "init: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: %s join|run PLAN", args[0])
	}
	plan, err := readPlan(args[2])
	if err != nil {
		return err
	}
	switch args[1] {
	case stageJoin:
		return join(plan, []string{args[0], stageRun, args[2]})
	case stageRun:
		if err := setUpRoot(plan); err != nil {
			return err
		}
		return supervise(plan.Programs)
	}
	return fmt.Errorf("unknown stage %q", args[1])
}

func readPlan(path string) (plan node.Plan, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return plan, fmt.Errorf("read the plan: %w", err)
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		return plan, fmt.Errorf("read the plan %s: %w", path, err)
	}
	return plan, nil
}
