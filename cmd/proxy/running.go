package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/daemon"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// runningProxy is the proxy that runs on this machine.
type runningProxy struct {
	// address is where its pages are served, or where they were expected if there is no response.
	address string
	// summary is the proxy's status; nil if there is no response. fetchErr is then the reason.
	summary  *status.Summary
	fetchErr error
	// settingsApplied is set if its settings are used here, except where flags override them.
	settingsApplied bool
}

// defaultAddresses are the addresses of the proxy's pages in manifests/: in place of kube-proxy, and next to it.
var defaultAddresses = []string{":10249", ":10349"}

// readRunning reads the settings as read does. Without --config they are those of the proxy on this machine: its page
// /configz has them, whatever their source. Flags on the command line override both.
func (f *stateFlags) readRunning(ctx context.Context) error {
	if err := f.read(); err != nil {
		return err
	}
	_ = f.resolve() // for the address; Validate resolves again, with the settings of the proxy
	addresses := []string{f.settings.MetricsBindAddress}
	if f.path == "" && !f.flagSet.Changed("metrics-bind-address") && !f.flagSet.Changed("bind-address") {
		addresses = defaultAddresses
	}
	var firstErr error
	for _, address := range addresses {
		summary, err := status.Fetch[status.Summary](ctx, address, "/summary")
		if f.running = (runningProxy{address: address, summary: summary}); err == nil {
			break
		}
		firstErr = cmp.Or(firstErr, err)
		f.running = runningProxy{address: f.settings.MetricsBindAddress, fetchErr: firstErr}
	}
	if f.running.summary == nil || f.path != "" || f.asKubectl || !f.actsAsRunning && !f.hasSameSource(f.running.summary) {
		return nil
	}
	return f.applyRunningSettings(ctx)
}

// hasSameSource reports whether the state comes from the same source as that of the running proxy. Settings of that
// proxy do not apply to another cluster.
func (f *stateFlags) hasSameSource(summary *status.Summary) bool {
	if f.manifests == "" {
		return summary.Manifests == "" || f.master == "" && !f.flagSet.Changed("kubeconfig")
	}
	path, err := filepath.Abs(f.manifests)
	return err == nil && path == summary.Manifests
}

// applyRunningSettings applies the settings of the running proxy. Settings that are specific to its node are skipped
// for another node.
func (f *stateFlags) applyRunningSettings(ctx context.Context) error {
	address, summary := f.running.address, f.running.summary
	page, err := status.FetchPage(ctx, address, "/configz")
	if err == nil {
		f.file, err = config.ReadConfigz("/configz", page, vicinitySettings())
	}
	if err != nil {
		return fmt.Errorf("read the settings of the proxy at %s (version %s): %w; use the same version of this program, or give "+
			"other settings with --config FILE", address, summary.Version, err)
	}
	if node, isGiven := f.givenText("hostnameOverride"); isGiven && node != summary.Node {
		f.file.Configuration.BindAddress = ""
	}
	f.file.Configuration.HostnameOverride = summary.Node
	if summary.Manifests != "" {
		f.file.VicinityFields[config.VicinityField("manifests")] = summary.Manifests
	}
	f.running.settingsApplied = true
	if err := f.applyVicinityFields(); err != nil {
		return err
	}
	return f.requireCredentials()
}

// requireCredentials returns an error if the running proxy reaches the API server with credentials that only its pod
// has; nil otherwise.
func (f *stateFlags) requireCredentials() error {
	if f.manifests != "" || f.master != "" || f.flagSet.Changed("kubeconfig") {
		return nil
	}
	credentials := "the service account of its pod"
	if path := f.file.Configuration.ClientConnection.Kubeconfig; path != "" {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return nil
		}
		credentials = fmt.Sprintf("%q, a file in its pod", path)
	} else if os.Getenv(serviceHostEnv) != "" {
		return nil
	}
	return unreadableError{fmt.Errorf("the proxy on this node uses %s, which is not available here: run this command in the pod (kubectl "+
		"-n kube-system exec POD -- /proxy ...), or give --kubeconfig FILE", credentials)}
}

// requireSettings returns an error with the remedy if there is no response from a proxy and no flag replaces its
// settings; nil otherwise.
func (f *stateFlags) requireSettings() error {
	if f.running.summary != nil || f.path != "" || f.manifests != "" || f.master != "" || f.settings.Connection.Kubeconfig != "" {
		return nil
	}
	return fmt.Errorf("no Vicinity proxy answers at %s: %w; if one runs on this node, give its address with --metrics-bind-address; "+
		"otherwise give its settings: --config FILE, or the flags of 'proxy run' with --manifests PATH or --kubeconfig FILE",
		f.running.address, f.running.fetchErr)
}

// runsOn reports whether the running proxy is the one of a node.
func (r *runningProxy) runsOn(node string) bool { return r.summary != nil && r.summary.Node == node }

// kernelRejections returns the Services that the kernel of the running proxy's node rejects, by name; none without a
// proxy.
func (r *runningProxy) kernelRejections(ctx context.Context) map[string]*explain.Rejection {
	if r.summary == nil {
		return nil
	}
	findings, err := status.Fetch[[]daemon.ActiveFinding](ctx, r.address, "/findings?code="+string(model.FailedToProgram))
	if err != nil {
		return nil
	}
	rejected := map[string]*explain.Rejection{}
	for _, finding := range *findings {
		if finding.Kernel != nil {
			rejected[finding.Kernel.Service] = finding.Kernel
		}
	}
	return rejected
}

// demotions returns the running proxy's demotions of unreachable nodes, if it is the proxy of the given node.
func (r *runningProxy) demotions(node string) model.Change {
	if !r.runsOn(node) {
		return model.Change{}
	}
	return r.summary.DemotionChange()
}

// warnOfUnreachable prints which nodes do not reply to the running proxy's node, if that is one of nodes. No API
// object has this information.
func (r *runningProxy) warnOfUnreachable(stderr io.Writer, nodes ...string) {
	if r.summary == nil || !slices.Contains(nodes, r.summary.Node) {
		return
	}
	for _, sentence := range r.summary.UnreachableSentences() {
		sanitize.Fprintf(stderr, "proxy: %s\n", sentence)
	}
}

// registerLikeRun registers the flags of 'proxy run' for a command that acts like the running proxy. --help lists the
// most important ones.
func (f *runFlags) registerLikeRun(flags *pflag.FlagSet) {
	f.actsAsRunning = true
	f.register(flags)
	flags.VisitAll(func(flag *pflag.Flag) {
		flag.Hidden = !slices.Contains([]string{"config", "metrics-bind-address", "manifests", "kubeconfig", "node"}, flag.Name)
	})
}

// readLikeRun reads and checks the flags of registerLikeRun.
func (f *runFlags) readLikeRun(ctx context.Context) error {
	if err := f.readRunning(ctx); err != nil {
		return err
	}
	if err := f.requireSettings(); err != nil {
		return err
	}
	if err := f.Validate(); err != nil {
		if f.running.settingsApplied { // the invalid settings are not from the command line
			return err
		}
		return cli.UsageError{Err: err}
	}
	return nil
}
