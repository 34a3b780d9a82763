package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set when a release is built: -ldflags "-X main.version=v1.2.3".
var version string

// build says what this program was made from.
type build struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func newVersion() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version [-o json]",
		Short: "Print the version of this program and of Go",
		Example: `  proxy version
  proxy version -o json | jq -r .version`,
		Args:                  atMost(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return usageError{err}
			}
			return writeVersion(command.OutOrStdout(), output, thisBuild())
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text or json")
	return command
}

// thisBuild reads what the linker and the Go toolchain left in the program.
func thisBuild() build {
	made := build{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if made.Version != "" {
		return made
	}
	// `go install module@v1.2.3` and a build inside a clone record a version by themselves; a test binary does not.
	if stamped, ok := debug.ReadBuildInfo(); ok && stamped.Main.Version != "" {
		made.Version = stamped.Main.Version
	} else {
		made.Version = "(devel)"
	}
	return made
}

func writeVersion(w io.Writer, output string, made build) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(made)
	}
	_, err := fmt.Fprintf(w, "vicinity %s, %s, %s\n", made.Version, made.GoVersion, made.Platform)
	return err
}
