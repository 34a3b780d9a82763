package cli_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/hostile"
)

// printCommand is a program with one command that prints some texts and fails with an error.
func printCommand(out, errOut []string, reason error) *cobra.Command {
	return cli.Root("program", "", "", &cobra.Command{Use: "print", RunE: func(command *cobra.Command, _ []string) error {
		for _, text := range out {
			fmt.Fprint(command.OutOrStdout(), text)
		}
		for _, text := range errOut {
			fmt.Fprint(command.ErrOrStderr(), text)
		}
		return reason
	}})
}

func TestOutputIsEscaped(t *testing.T) {
	var stdout, stderr strings.Builder
	root := printCommand([]string{"a\x1b", "→"[:1], "→"[1:] + "ü", "\u009b\n", "→"[:2]}, []string{"\x9b\n"}, errors.New("one\ntwo\x1b"))
	status := cli.Run(t.Context(), root, []string{"print"}, strings.NewReader(""), &stdout, &stderr)
	if want := `a\u001b→ü\u009b` + "\n" + `\xe2\x86`; stdout.String() != want {
		t.Errorf("standard output is %q, want %q", stdout.String(), want)
	}
	if want := `\x9b` + "\n" + `program: one; two\x1b` + "\n"; stderr.String() != want || status != cli.Failure {
		t.Errorf("standard error is %q, want %q; status %d", stderr.String(), want, status)
	}
}

// TestUsageErrorsAreOneLineEach checks that each error is one line, whatever text it contains.
func TestUsageErrorsAreOneLineEach(t *testing.T) {
	var stdout, stderr strings.Builder
	wrapped := fmt.Errorf("three: %w", errors.Join(errors.New("a"), errors.New("b")))
	nested := errors.Join(errors.New("one"), errors.Join(errors.New("two"+hostile.Text), wrapped))
	status := cli.Run(t.Context(), printCommand(nil, nil, cli.UsageError{Err: nested}), []string{"print"}, strings.NewReader(""), &stdout,
		&stderr)
	lines := strings.Split(stderr.String(), "\n")
	if status != cli.Usage || len(lines) != 6 || lines[0] != "program: one" || !strings.HasPrefix(lines[1], "program: two") ||
		lines[2] != "program: three: a; b" || hostile.Found(stderr.String()) != "" {
		t.Errorf("status %d, %q", status, lines)
	}
}
