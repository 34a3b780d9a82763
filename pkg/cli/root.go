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

// Root returns the root command of a program, with its name, a one-sentence summary, the text of --help, and its
// commands.
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
		// A mistyped command may come with flags of the intended one; the error must be about the command.
		FParseErrWhitelist:         cobra.FParseErrWhitelist{UnknownFlags: true},
		SuggestionsMinimumDistance: 2,
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(commands...)
	return root
}

// usageTemplate is the usage part of every --help text.
const usageTemplate = `Usage:
  {{.UseLine}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 110 | trimTrailingWhitespaces}}
`

// unknownCommand runs for the root itself. It returns an error for a missing or an unknown command.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return UsageError{errors.New("missing command; must be one of: " + strings.Join(commandNames(root), ", "))}
	}
	message := fmt.Sprintf("unknown command %q", args[0])
	if suggestions := root.SuggestionsFor(args[0]); len(suggestions) > 0 {
		message += fmt.Sprintf("; did you mean %q?", suggestions[0])
	}
	return UsageError{errors.New(message)}
}

// flagError adds a suggestion to an error about an unknown flag.
func flagError(command *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return UsageError{err}
	}
	var names []string
	command.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	if suggestion := policy.Suggest(unknown.GetSpecifiedName(), names...); suggestion != "" {
		err = fmt.Errorf("%w; did you mean --%s?", err, suggestion)
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

// Choice returns an error unless the value of a flag is one of the allowed values.
func Choice(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s %q must be one of: %s", flag, value, strings.Join(allowed, ", "))
}
