package main

import (
	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

func newRoot() *cobra.Command {
	return cli.Root("webhook", "Report mistakes in the topology settings of Services where they are made",
		`Vicinity's admission webhook. API servers accept almost every mistake in the topology settings of a Service, and the
Service then behaves as if the setting were not there. The webhook reports the problem and the fix.

The rules need no cluster. For files, in a pipeline or before a commit:

  webhook check -f deploy/
  helm template shop ./chart | webhook check -f -`,
		newRun(), newCheck(), newRules(), cli.NewVersion("webhook", thisBuild()),
	)
}
