package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// The exit statuses. Scripts and service managers rely on them.
const (
	exitOK      = 0
	exitFailure = 1 // the command was understood, but could not be carried out
	exitUsage   = 2 // the command line is wrong; trying again cannot help
)

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// run carries out one command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if wrong := (usageError{}); errors.As(err, &wrong) {
		printUsage(stderr, command, wrong)
		return exitUsage
	}
	// Joined errors stand on a line each; a log collector should see one message.
	fmt.Fprintf(stderr, "proxy: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	return exitFailure
}

// printUsage tells every mistake on a line of its own, then how the command is used.
func printUsage(stderr io.Writer, command *cobra.Command, wrong usageError) {
	for mistake := range strings.Lines(wrong.Error()) {
		fmt.Fprintf(stderr, "proxy: %s\n", strings.TrimSuffix(mistake, "\n"))
	}
	fmt.Fprintf(stderr, "usage: %s\nSee '%s --help'.\n", command.UseLine(), command.CommandPath())
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "proxy COMMAND",
		Short: "Send connections to Kubernetes Services to the nearest endpoint that their owners allow",
		Long: `Vicinity's service proxy. It runs once on every node and programs nftables, so that a connection to a
Service reaches the nearest endpoint that the Service's owner allows.

To see what it would do, no cluster and no root are needed, only a folder of Services, EndpointSlices, Nodes
and ServiceCIDRs as 'kubectl get -o yaml' prints them:

  kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml > state/all.yaml
  proxy explain --manifests state --node node-a1`,
		Args:                  cobra.ArbitraryArgs, // so that RunE sees an unknown command
		RunE:                  unknownCommand,
		SilenceErrors:         true, // run prints them, once
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
		// A mistyped command comes with flags that only the right one knows; the command is what must be complained about.
		FParseErrWhitelist:         cobra.FParseErrWhitelist{UnknownFlags: true},
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
		SuggestionsMinimumDistance: 2,
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetHelpCommand(newHelp())
	root.AddCommand(newRun(), newRender(), newExplain(), newCleanup(), newVersion())
	return root
}

// usageTemplate is the lower half of every --help text.
const usageTemplate = `Usage:
  {{.UseLine}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 110 | trimTrailingWhitespaces}}
`

// unknownCommand is what the root does by itself: nothing, since every command has a name.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{errors.New("the command must come first, one of: " + strings.Join(commandNames(root), ", "))}
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		message += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return usageError{errors.New(message)}
}

// newHelp is cobra's own help, but for a command that does not exist: that is a mistake here too.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:                   "help [COMMAND]",
		Short:                 "Print how a command is used",
		Args:                  atMost(1),
		DisableFlagsInUseLine: true,
		RunE: func(help *cobra.Command, args []string) error {
			command, _, err := help.Root().Find(args)
			if err != nil {
				return usageError{err}
			}
			if command == help.Root() && len(args) > 0 {
				return unknownCommand(command, args)
			}
			return command.Help()
		},
	}
}

func commandNames(root *cobra.Command) []string {
	var names []string
	for _, command := range root.Commands() {
		if command.IsAvailableCommand() && command.Name() != "help" {
			names = append(names, command.Name())
		}
	}
	return names
}

// atMost allows up to a number of arguments, and calls more of them wrong usage.
func atMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return usageError{fmt.Errorf("unexpected argument %q", args[n])}
		}
		return nil
	}
}
