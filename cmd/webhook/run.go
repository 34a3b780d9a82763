package main

import (
	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func newRun() *cobra.Command {
	var flags runFlags
	command := &cobra.Command{
		Use:   "run [FLAGS]",
		Short: "Answer an API server's admission reviews",
		Long: `Answers admission reviews of Services and Namespaces over HTTPS: whether their topology settings would do what their
author thinks, and which settings a Service gets that says nothing. The manifests are in manifests/webhook.

Any number of replicas may run: they share a certificate, which they make and renew themselves by default, and
nothing else. On SIGTERM a replica stops being ready, answers all requests for --shutdown-delay, and exits.`,
		Example: `  webhook run --config /etc/vicinity/config.yaml                                 # in a pod
  webhook run --kubeconfig ~/.kube/config --cert-source files \
      --tls-cert-file tls.crt --tls-private-key-file tls.key                     # outside, for a try`,
		Args:                  cli.MaxArgs(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return cli.UsageError{Err: err}
			}
			return serve(cli.SignalContext(command.Context()), command.ErrOrStderr(), &flags)
		},
	}
	flags.register(command.Flags())
	return command
}
