package main

import (
	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func newRun() *cobra.Command {
	var flags runFlags
	command := &cobra.Command{
		Use:   "run [FLAGS]",
		Short: "Serve an API server's admission reviews",
		Long: `Serve admission reviews of Services and Namespaces over HTTPS: check whether their topology settings have the intended
effect, and set defaults for Services without any. The manifests are in manifests/webhook.

Any number of replicas may run: they share a certificate, which they create and renew themselves by default, and
nothing else. On SIGTERM a replica stops being ready, answers all requests for --shutdown-delay, and exits.`,
		Example: `  webhook run --config /etc/vicinity/config.yaml                                 # in a pod
  webhook run --kubeconfig ~/.kube/config --cert-source files \
      --tls-cert-file tls.crt --tls-private-key-file tls.key                     # outside of a cluster`,
		Args:                  cli.MaxArgs(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := flags.validate(); err != nil {
				return cli.UsageError{Err: err}
			}
			return serve(cli.SignalContext(command.Context()), command.ErrOrStderr(), &flags)
		},
	}
	flags.register(command.Flags())
	return command
}
