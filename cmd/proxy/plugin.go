package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

// pluginName is the file name of the program as a kubectl plugin, with the commands that users run.
const pluginName = "kubectl-vicinity"

func newPlugin() *cobra.Command {
	root := cli.Root(pluginName, "Print where connections to Kubernetes Services go, why, and what other settings would change",
		`Vicinity's commands for users, as a plugin of kubectl. They read kubectl's current cluster, with the user's own
permissions, and change nothing. 'forecast' works with any proxy in the cluster.`,
		newExplain(&explainFlags{stateFlags: stateFlags{asKubectl: true}}), newForecast(), newStatus(true), cli.NewVersion("proxy", thisBuild()),
	)
	const displayName = "kubectl vicinity"
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: displayName}
	for _, command := range root.Commands() {
		command.Example = strings.ReplaceAll(command.Example, " proxy "+command.Name(), " "+displayName+" "+command.Name())
	}
	return root
}
