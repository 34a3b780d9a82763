package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Build describes how a program was built.
type Build struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// BuildOf returns the build data that the Go toolchain left in this program. version is the one set by the linker;
// empty if it set none.
func BuildOf(version string) Build {
	build := Build{Version: version, GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build.Version != "" {
		return build
	}
	// `go install module@v1.2.3` and a build inside a clone record a version; a test binary does not.
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		build.Version = info.Main.Version
	} else {
		build.Version = "(devel)"
	}
	return build
}

// NewVersion returns the version command.
func NewVersion(program string, build Build) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version [-o json]",
		Short: "Print the version of this program and of Go",
		Example: fmt.Sprintf(`  %[1]s version
  %[1]s version -o json | jq -r .version`, program),
		Args:                  MaxArgs(0),
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := Choice("output", output, "text", "json"); err != nil {
				return UsageError{err}
			}
			return build.write(command.OutOrStdout(), output)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text or json")
	Complete(command, "output", "text", "json")
	return command
}

func (b Build) write(w io.Writer, output string) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(b)
	}
	_, err := sanitize.Fprintf(w, "vicinity %s, %s, %s\n", b.Version, b.GoVersion, b.Platform)
	return err
}
