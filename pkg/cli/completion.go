package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// newCompletion returns the command that prints what a shell needs to complete a program's commands and flags.
func newCompletion(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that completes commands and flags in a shell",
		Long: `Print a script that completes commands, flags and their values in a shell. Bash needs the package bash-completion for
it.`,
		Example: fmt.Sprintf(`  source <(%[1]s completion bash)                          # in this shell
  %[1]s completion bash > /etc/bash_completion.d/%[1]s       # in all
  %[1]s completion zsh > "${fpath[1]}/_%[1]s"
  %[1]s completion fish > ~/.config/fish/completions/%[1]s.fish`, program),
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return UsageError{fmt.Errorf("the shell is missing: bash, zsh or fish")}
			}
			return AtMost(1)(nil, args)
		},
		RunE: func(command *cobra.Command, args []string) error {
			root, out := command.Root(), command.OutOrStdout()
			write := map[string]func(io.Writer) error{
				"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
				"zsh":  root.GenZshCompletion,
				"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
			}[args[0]]
			if write == nil {
				return UsageError{fmt.Errorf("shell %q is none of: bash, zsh, fish", args[0])}
			}
			if err := write(out); err != nil {
				return fmt.Errorf("write the script: %w", err)
			}
			return nil
		},
	}
}

// Complete makes a shell offer the values of a flag.
func Complete(command *cobra.Command, flag string, values ...string) {
	offer := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	}
	if err := command.RegisterFlagCompletionFunc(flag, offer); err != nil {
		panic(err) // there is no such flag
	}
}
