package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// The service proxies of a lab.
const (
	vicinity  = "vicinity"
	kubeProxy = "kube-proxy"
	noProxy   = "none"
)

// runner runs specs in labs of its own, or in an existing cluster.
type runner struct {
	programs binaries.Programs
	lab      string // path of the lab's program
	folder   string // for all files of this run
	proxy    string
	nodes    int
	output   io.Writer
	// kubeconfig is the kubeconfig of an existing cluster; empty for a lab.
	kubeconfig string
}

// list returns all [sig-network] specs, from the test binary.
func (r runner) list(ctx context.Context) ([]types.SpecReport, error) {
	report := filepath.Join(r.folder, "all.json")
	cmd := exec.CommandContext(ctx, r.programs.Path(binaries.Upstream, "e2e.test"),
		"--ginkgo.dry-run", "--ginkgo.no-color", "--ginkgo.label-filter=sig-network", "--ginkgo.json-report="+report)
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("list Kubernetes' specs: %w\n%s", err, output)
	}
	return readReport(report)
}

// readReport returns the specs of a report that ginkgo wrote.
func readReport(file string) ([]types.SpecReport, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, fmt.Errorf("read the report %s: %w", file, err)
	}
	var specs []types.SpecReport
	for _, report := range reports {
		specs = append(specs, report.SpecReports...)
	}
	return specs, nil
}

// inCluster calls do with the existing cluster, or with a lab of a kind.
func (r runner) inCluster(ctx context.Context, kind labKind, do func(kubeconfig string) error) error {
	if r.kubeconfig != "" {
		return do(r.kubeconfig)
	}
	return r.inLab(ctx, kind, do)
}

// inLab starts a lab, calls do with it, and ends it.
func (r runner) inLab(ctx context.Context, kind labKind, do func(kubeconfig string) error) (err error) {
	archive := filepath.Join(r.folder, "images.tar")
	all, err := images(ctx, r.programs, filepath.Join(r.folder, "registry"))
	if err != nil {
		return err
	}
	if kind == networkPolicy {
		kubeRouter, err := imageOfKubeRouter(r.programs)
		if err != nil {
			return err
		}
		all = append(all, kubeRouter)
	}
	if err := image.Write(archive, all...); err != nil {
		return err
	}
	folder := filepath.Join(r.folder, "lab")
	up := []string{"up", "--dir", folder, "--nodes", strconv.Itoa(r.nodes), "--images", archive}
	if kind == localhost {
		up = append(up, "--localhost")
	}
	switch r.proxy {
	case kubeProxy:
		up = append(up, "--install", "none", "--kube-proxy")
	case noProxy:
		up = append(up, "--install", "none")
	}
	defer func() {
		// Also after Ctrl-C.
		err = errors.Join(err, r.run(context.WithoutCancel(ctx), r.lab, "down", "--dir", folder))
	}()
	if err := r.run(ctx, r.lab, up...); err != nil {
		return fmt.Errorf("start lab: %w", err)
	}
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := r.prepare(ctx, kind, kubeconfig); err != nil {
		return err
	}
	return do(kubeconfig)
}

// prepare stops cluster DNS or installs kube-router in a new lab, if its specs need that.
func (r runner) prepare(ctx context.Context, kind labKind, kubeconfig string) error {
	if r.proxy == noProxy {
		// The specs wait for all pods of kube-system, and cluster DNS needs a proxy.
		err := r.kubectl(ctx, kubeconfig, "scale", "deployment", "coredns", "--replicas=0")
		if err != nil {
			return fmt.Errorf("stop cluster DNS: %w", err)
		}
	}
	if kind == networkPolicy {
		return r.installKubeRouter(ctx, kubeconfig)
	}
	return nil
}

// kubectl runs kubectl in the namespace of the cluster's own components.
func (r runner) kubectl(ctx context.Context, kubeconfig string, args ...string) error {
	before := []string{"--kubeconfig", kubeconfig, "--namespace", "kube-system"}
	return r.run(ctx, r.programs.Path(binaries.Kubernetes, "kubectl"), append(before, args...)...)
}

func (r runner) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = r.output, r.output
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	return nil
}

const (
	// parallelism is the number of specs that run at the same time: most of a spec is waiting.
	parallelism = 8
	// specTimeout is the timeout of a whole part. It only determines how late a part that hangs is reported.
	specTimeout = 90 * time.Minute
)

// runPart runs some specs and returns the result of each. Specs that fail are not an error.
func (r runner) runPart(ctx context.Context, name, kubeconfig string, texts []string) ([]types.SpecReport, error) {
	report := name + ".json"
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = regexp.QuoteMeta(text)
	}
	log, err := os.Create(filepath.Join(r.folder, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("create log file: %w", err)
	}
	defer log.Close()
	r.output = io.MultiWriter(r.output, log)
	err = r.run(ctx, r.programs.Path(binaries.Upstream, "ginkgo"),
		"--procs", strconv.Itoa(parallelism), "--timeout", specTimeout.String(), "--no-color", "--silence-skips", "--poll-progress-after", "10m",
		"--focus", " ("+strings.Join(quoted, "|")+")$", // ginkgo puts the suite's name before a spec's text
		"--output-dir", r.folder, "--json-report", report,
		r.programs.Path(binaries.Upstream, "e2e.test"), "--",
		"--kubeconfig", kubeconfig, "--kubectl-path", r.programs.Path(binaries.Kubernetes, "kubectl"), "--provider", "skeleton",
		"--num-nodes", strconv.Itoa(r.nodes), "--dump-logs-on-failure=false", "--e2e-output-dir", r.folder,
	)
	specs, readErr := readReport(filepath.Join(r.folder, report))
	if readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	return specs, ctx.Err()
}
