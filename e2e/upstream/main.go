// Command upstream runs Kubernetes' own [sig-network] specs in a lab, with Vicinity, with kube-proxy, or without a
// service proxy, and writes the table of their results.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "upstream: %v\n", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "upstream",
		Short: "Run Kubernetes' own [sig-network] specs in a lab",
		Long: `Run Kubernetes' own [sig-network] specs in a lab. Their programs are built once from Kubernetes' modules and kept in
your cache folder. Their images are assembled from these programs and this machine's tools.

left-out.yaml lists the skipped specs with reasons. The others run in two parts: first most of them in parallel, then
those labelled Serial, Slow or Disruptive. Specs about node ports on loopback run in a separate lab, whose proxy has the
feature gate for them. Specs about NetworkPolicy run in a lab with kube-router on every node.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newRun(), newTable(), newImages())
	return root
}

func newRun() *cobra.Command {
	var folder, lab, focus string
	r := runner{output: os.Stdout}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the specs, and keep the results",
		Example: `  upstream run                        with Vicinity: about half an hour on two cores
  upstream run --proxy kube-proxy     the control: failures here are not Vicinity's
  upstream run --proxy none --focus 'serve a basic endpoint'     shows that specs can fail
  upstream run --focus 'session affinity'

  # in another cluster, whose nodes have the images of 'upstream images'
  upstream run --kubeconfig bin/kind/kubeconfig --focus 'session affinity'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if r.proxy != vicinity && r.proxy != kubeProxy && r.proxy != noProxy {
				return fmt.Errorf("--proxy %q: must be one of: %s, %s, %s", r.proxy, vicinity, kubeProxy, noProxy)
			}
			pattern, err := regexp.Compile(focus)
			if err != nil {
				return fmt.Errorf("--focus: %w", err)
			}
			if r.folder, err = filepath.Abs(filepath.Join(folder, r.proxy)); err != nil {
				return fmt.Errorf("find %s: %w", folder, err)
			}
			if r.lab, err = filepath.Abs(lab); err != nil {
				return fmt.Errorf("find %s: %w", lab, err)
			}
			if r.kubeconfig != "" {
				if r.kubeconfig, err = filepath.Abs(r.kubeconfig); err != nil {
					return fmt.Errorf("find %s: %w", r.kubeconfig, err)
				}
			}
			return runAll(cmd.Context(), r, pattern)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.proxy, "proxy", vicinity, "the service `PROXY`: vicinity, kube-proxy or none")
	flags.StringVar(&focus, "focus", "", "only specs whose text matches this regular `EXPRESSION`; others keep their results")
	flags.StringVar(&r.kubeconfig, "kubeconfig", "",
		"the kubeconfig `FILE` of an existing cluster to use instead of labs; --proxy then only names its proxy")
	flags.IntVar(&r.nodes, "nodes", 6, "the lab's nodes, at least three")
	flags.StringVar(&folder, "dir", "bin/upstream", "the `FOLDER` for logs and results")
	flags.StringVar(&lab, "lab", "bin/lab", "the lab's `PROGRAM`")
	return cmd
}

func newImages() *cobra.Command {
	return &cobra.Command{
		Use:   "images FILE",
		Short: "Write the images that the specs run, as 'docker save' does",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			programs, err := binaries.Build(cmd.Context(), os.Stdout, binaries.CoreDNS, binaries.Upstream)
			if err != nil {
				return err
			}
			folder, err := os.MkdirTemp("", "registry-")
			if err != nil {
				return fmt.Errorf("create folder: %w", err)
			}
			defer func() { _ = os.RemoveAll(folder) }()
			all, err := images(cmd.Context(), programs, folder)
			if err != nil {
				return err
			}
			return image.Write(args[0], all...)
		},
	}
}

// previousResults returns the results to which a run adds: those of earlier runs, if it runs only some specs.
func (r runner) previousResults(focus *regexp.Regexp) (results, error) {
	if focus.String() == "" {
		return results{}, nil
	}
	found, err := readResultsOf(r.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return results{}, nil
	}
	return found, err
}

// runAll runs both parts, and writes results.json.
func runAll(ctx context.Context, r runner, focus *regexp.Regexp) error {
	start := time.Now()
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	var err error
	if r.programs, err = binaries.Build(ctx, r.output, append(binaries.All, binaries.Upstream, binaries.KubeRouter)...); err != nil {
		return err
	}
	chosen, err := r.choose(ctx, focus)
	if err != nil {
		return err
	}
	found, err := r.previousResults(focus)
	if err != nil {
		return err
	}
	for _, kind := range labKinds {
		inKind := chosen.inLab(kind)
		if len(inKind.specs) == 0 {
			continue
		}
		err := r.inCluster(ctx, kind, func(kubeconfig string) error { return r.runParts(ctx, kubeconfig, inKind, found) })
		if err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.folder, resultsFile), text, 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	fmt.Fprintf(r.output, "\nKubernetes' [sig-network] specs with %s, after %s\n%s",
		r.proxy, time.Since(start).Round(time.Second), found.summary())
	if !found.allPassed() {
		return errors.New("specs failed")
	}
	return nil
}

// choose returns the specs to run.
func (r runner) choose(ctx context.Context, focus *regexp.Regexp) (choice, error) {
	reasons, err := readReasons()
	if err != nil {
		return choice{}, err
	}
	reports, err := r.list(ctx)
	if err != nil {
		return choice{}, err
	}
	all, err := choose(reports, reasons)
	if err != nil {
		return choice{}, err
	}
	chosen := all.matching(focus)
	fmt.Fprintf(r.output, "%d specs of %d run; left-out.yaml skips %d\n",
		len(chosen.specs), len(all.specs)+all.skippedCount(), all.skippedCount())
	if len(chosen.specs) == 0 {
		return choice{}, fmt.Errorf("--focus %s matches no spec that is not skipped", focus)
	}
	return chosen, nil
}

// runParts adds the results of the chosen specs to found.
func (r runner) runParts(ctx context.Context, kubeconfig string, chosen choice, found results) error {
	for _, part := range []struct {
		name  string
		alone bool
	}{{"side-by-side", false}, {"alone", true}} {
		texts := chosen.texts(part.alone)
		if len(texts) == 0 {
			continue
		}
		fmt.Fprintf(r.output, "\n%s: %d specs\n", part.name, len(texts))
		reports, err := r.runPart(ctx, part.name, kubeconfig, texts)
		if err != nil {
			return err
		}
		maps.Copy(found, resultsOf(texts, reports))
	}
	return nil
}

const resultsFile = "results.json"
