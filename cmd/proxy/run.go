package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/daemon"
)

func newRun() *cobra.Command {
	var flags runFlags
	var output string
	command := &cobra.Command{
		Use:   "run [flags]",
		Short: "Program the kernel, and follow every change until stopped",
		Long: `Read the state of the cluster from the API server, or from a folder or a file of manifests, program nftables in the current network
namespace, and follow every change. One line on standard output reports when the first sync is in the kernel; the log goes to
standard error.

The configuration is kube-proxy's: its file, with --config, and its flags. Flags override the file. A setting without an
effect here is accepted, and logged once. When the file or the kubeconfig changes, the proxy exits, so that it is
restarted.

An invalid object is ignored, and its last known good version stays active: the log has its name, its file and the
reason, and /healthz and /metrics count such objects. SIGTERM and Ctrl-C end the proxy and keep the rules, so that a
restart disrupts nothing; 'proxy cleanup' removes them.

With --check nothing is programmed: it prints, line by line, the effect of kube-proxy's file, which of kube-proxy's
defaults differ, what kube-proxy left on this node, and where node ports would be served. Exit status: 0 if the proxy would start, 2 if not.
It reads what 'run' first reads from the kernel, but writes no kernel setting, opens no port and creates no table.

Root (CAP_NET_ADMIN) and Linux 5.13 or newer are needed.`,
		Example: `  # in a pod, with the ConfigMap of kube-proxy
  proxy run --config /var/lib/kube-proxy/config.conf --hostname-override $NODE_NAME

  # what would change here, before anything is touched?
  kubectl -n kube-system get configmap kube-proxy -o jsonpath='{.data.config\.conf}' > kube-proxy.conf
  sudo proxy run --check --config kube-proxy.conf --kubeconfig ~/.kube/config

  # without a cluster
  sudo proxy run --manifests state --node node-a1

  # masquerade connections from outside the pods' addresses
  sudo proxy run --manifests state --cluster-cidr 10.244.0.0/16,fd00:10:244::/56

  # is it healthy?
  curl -s localhost:10256/healthz
  curl -s localhost:10249/metrics | grep vicinity_`,
		Args:                  cli.MaxArgs(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := cli.Choice("output", output, "text", "json", "yaml"); err != nil {
				return cli.UsageError{Err: err}
			}
			if command.Flags().Changed("output") && !flags.check {
				return cli.UsageError{Err: errors.New("--output needs --check")}
			}
			if flags.stdin = command.InOrStdin(); flags.check {
				return exitUnreadable(command,
					runCheck(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), &flags, output))
			}
			return flags.run(command)
		},
	}
	flags.register(command.Flags())
	command.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output of --check: text, json or yaml")
	cli.Complete(command, "output", "text", "json", "yaml")
	return command
}

// run runs the step or daemon that the flags select, except for --check.
func (f *runFlags) run(command *cobra.Command) error {
	if err := f.read(); err != nil {
		return err
	}
	if err := f.Validate(); err != nil {
		return cli.UsageError{Err: err}
	}
	switch {
	case f.writeConfigTo != "":
		return config.Write(f.writeConfigTo, f.configuration, vicinitySettings(), f.vicinityValues(true))
	case f.initOnly:
		return daemon.Prepare(f.logger(command.ErrOrStderr()), &f.settings)
	}
	if f.manifests == stdinManifests {
		return cli.UsageError{Err: errors.New("--manifests - can be read only once, and 'run' watches its manifests: give a folder or a file; " +
			"'run --check', 'explain', 'forecast' and 'render' read once")}
	}
	log := f.logger(command.ErrOrStderr())
	return daemon.Run(cli.SignalContext(command.Context()), command.OutOrStdout(), log, f.options())
}
