package cli_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
)

// asCommand is an environment variable. In a process that has it, the program is a command that never ends, or one that
// drains if the value requests it.
const asCommand = "VICINITY_CLI_TEST"

func TestMain(m *testing.M) {
	if kind := os.Getenv(asCommand); kind != "" {
		os.Args = os.Args[:1]
		cli.Main(context.Background(), &cobra.Command{Use: "wait", SilenceUsage: true, RunE: func(command *cobra.Command, _ []string) error {
			return wait(command.Context(), command.OutOrStdout(), kind)
		}})
	}
	os.Exit(m.Run())
}

func wait(ctx context.Context, out io.Writer, kind string) error {
	if kind != "drains" {
		fmt.Fprintln(out, "waiting")
		select {}
	}
	ctx = cli.SignalContext(ctx)
	fmt.Fprintln(out, "waiting")
	<-ctx.Done()
	fmt.Fprintln(out, "draining")
	return errors.New("drained")
}

func TestSignalContext(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{"drains": "exit status 1", "plain": "signal: terminated"} {
		t.Run(kind, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), self)
			command.Env = append(os.Environ(), asCommand+"="+kind)
			output, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(output)
			if !lines.Scan() || lines.Text() != "waiting" {
				t.Fatalf("first line %q", lines.Text())
			}
			if err := command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			var laterLines []string
			for lines.Scan() {
				laterLines = append(laterLines, lines.Text())
			}
			if err := command.Wait(); err == nil || err.Error() != want {
				t.Errorf("exit: %v, want %s", err, want)
			}
			if got := strings.Join(laterLines, " "); (got == "draining") != (kind == "drains") {
				t.Errorf("output after the signal: %q", got)
			}
		})
	}
}
