package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Root returns a program: its name, a sentence about it, what --help says, and its commands.
func Root(name, short, long string, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:                   name + " COMMAND",
		Short:                 short,
		Long:                  long,
		Args:                  cobra.ArbitraryArgs, // so that RunE sees an unknown command
		RunE:                  unknownCommand,
		SilenceErrors:         true, // Run prints them, once
		SilenceUsage:          true,
		DisableFlagsInUseLine: true,
		// A mistyped command comes with flags that only the right one knows; the error must be about the command.
		FParseErrWhitelist:         cobra.FParseErrWhitelist{UnknownFlags: true},
		SuggestionsMinimumDistance: 2,
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(commands...)
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

// unknownCommand is what the root itself does: it refuses a line without a command, or with an unknown one.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return UsageError{errors.New("the command must come first, one of: " + strings.Join(commandNames(root), ", "))}
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		message += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return UsageError{errors.New(message)}
}

// flagError names the flag that was probably meant beside one that the command does not have.
func flagError(command *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return UsageError{err}
	}
	var names []string
	command.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	if meant := policy.Suggest(unknown.GetSpecifiedName(), names...); meant != "" {
		err = fmt.Errorf("%w; did you mean --%s?", err, meant)
	}
	return UsageError{err}
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

// MaxArgs allows up to n arguments; more are a usage error.
func MaxArgs(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return UsageError{fmt.Errorf("unexpected argument %q", args[n])}
		}
		return nil
	}
}

// Choice checks the value of a flag that allows only a few values.
func Choice(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s %q is none of: %s", flag, value, strings.Join(allowed, ", "))
}
