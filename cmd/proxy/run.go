package main

import (
	"github.com/spf13/cobra"
)

func newRun() *cobra.Command {
	var flags runFlags
	command := &cobra.Command{
		Use:   "run --manifests DIR [flags]",
		Short: "Program the kernel, and follow every change until told to stop",
		Long: `Load the manifests, program nftables in the current network namespace, and follow every change of the folder. One line on
standard output says when the first sync is in the kernel; the log goes to standard error.

An object that cannot be right is left out alone, and its last good version stays in force: the log and /healthz say
which, where and why, and /metrics counts them. SIGTERM and Ctrl-C end the proxy and leave the rules, so that a restart
disturbs nothing; 'proxy cleanup' removes them.

Root (CAP_NET_ADMIN) and Linux 5.13 or newer are needed.`,
		Example: `  sudo proxy run --manifests state --node node-a1

  # masquerade what comes from outside the pods' addresses
  sudo proxy run --manifests state --cluster-cidr 10.244.0.0/16,fd00:10:244::/56

  # is it well?
  curl -s localhost:10256/healthz
  curl -s localhost:10249/metrics | grep vicinity_`,
		Args:                  atMost(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := flags.Validate(); err != nil {
				return usageError{err}
			}
			return serve(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), &flags)
		},
	}
	flags.register(command.Flags())
	return command
}
