package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/check"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/config"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The exit statuses of check, in addition to cli.OK.
const (
	exitDenied    = 1 // an object would be denied
	exitUnchecked = 2 // something could not be checked
)

const checkLong = `Check the Services and Namespaces in files against the webhook's rules for new objects. No cluster is needed.

FILE is a YAML or JSON file, which may have several documents and Lists; or - for standard input; or a folder, in which every
.yaml, .yml and .json file is read, including those in subfolders. Templates must be rendered first.

Files without complete objects are skipped and counted: kustomizations, and files that they name other than resources; of Helm charts
(folders with Chart.yaml) Chart.yaml, values and templates/; JSON patches; and files that --exclude matches. -v lists them. The folder of
each file and those above it are read, too, so that a file has the same role whether its folder or its name is given. Patches of Services
and Namespaces that a kustomization names or contains, and the annotations and labels that it adds to every object, are checked in part:
for annotations and labels that are wrong regardless of the rest. To check all of it, check the output of 'kubectl kustomize' and
'helm template'.

Each line of the output is one finding: its location, the object, the field, the problem and the fix, the rule's id, and the action.
'webhook rules' lists the rules. The last line, on standard error, is a summary.

  deploy/web.yaml:7: Service shop/web: metadata.annotations[vicinity.dev/topology-keys]: ... [SVC003] (deny)

A finding (error) is something that could not be checked: text that is not YAML, a field that is set twice or has the wrong type, or an
unknown field, which API servers would drop, if it looks like a topology setting. What API servers reject themselves is not reported
again.

If there are Nodes in the files, topology keys are compared with their labels. Objects of other kinds are skipped, and so are those that
have the label vicinity.dev/admission: disabled, and Services of a Namespace in the files that has it.

The exit status is 0 if nothing is denied, 1 if something is, and 2 if something could not be checked or the command line is wrong.

-o json prints one document: "findings", each with file, line, kind, namespace, name, rule, action (deny, warn or error), path and
message; "skipped", the skipped files, each with file, role and reason; and "summary", with the numbers of objects checked and
skipped, of patches, of those denied, of warnings, errors and filesSkipped. All of these fields are always present. A line is 0 if
the finding is about a file as a whole, a rule is "" for an error.`

func newCheck() *cobra.Command {
	var flags checkFlags
	command := &cobra.Command{
		Use:   "check -f FILE... [flags]",
		Short: "Check Services and Namespaces in files against the webhook's rules",
		Long:  checkLong,
		Example: `  # everything below a folder
  webhook check -f deploy/

  # without values files that are outside of a chart's folder
  webhook check -f deploy/ --exclude 'values*.yaml' --exclude 'deploy/**/testdata'

  # an overlay, as it would be applied
  kubectl kustomize deploy/prod | webhook check -f -

  # a chart, as it would be installed, with a cluster's configuration
  helm template shop ./chart | webhook check --config config.yaml -f -

  # the objects of a live cluster
  kubectl get services,namespaces,nodes -A -o yaml | webhook check -f -

  # which rules are broken, and how often
  webhook check -f deploy/ -o json | jq -r '.findings[].rule' | sort | uniq -c

  # before each commit, in .pre-commit-config.yaml
  repos:
  - repo: local
    hooks:
    - id: topology
      name: topology settings of Services
      entry: webhook check
      language: system
      require_serial: true # one run sees all files of the commit
      files: ^deploy/.*\.(yaml|yml|json)$`,
		DisableFlagsInUseLine: true,
		RunE: func(command *cobra.Command, args []string) error {
			flags.files = append(flags.files, args...)
			if err := flags.Validate(); err != nil {
				return cli.UsageError{Err: err}
			}
			return runCheck(command.InOrStdin(), command.OutOrStdout(), command.ErrOrStderr(), &flags)
		},
	}
	flags.register(command.Flags())
	return command
}

// checkFlags are the flags of check.
type checkFlags struct {
	files   []string
	exclude []string
	config  string
	strict  bool
	verbose bool
	output  string
}

func (f *checkFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVarP(&f.files, "filename", "f", nil,
		"`FILE` or folder to check, or - for standard input. May be repeated; arguments without a flag are files too")
	flags.StringArrayVar(&f.exclude, "exclude", nil,
		"`GLOB` of files and folders to skip: ?, * within a name, ** across folders, [a-z], {a,b}. It may begin at any folder of a path: "+
			"'values*.yaml', 'overlays/dev', 'deploy/**/test'. May be repeated")
	flags.StringVar(&f.config, "config", "",
		"`FILE` with the webhook's TopologyAdmissionConfiguration. Without it every rule has its default action")
	flags.BoolVar(&f.strict, "strict", false,
		"deny instead of warning where a rule is stricter in strict mode, like 'strict: true' in the file")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "list each skipped file with the reason, on standard error")
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text or json")
}

// Validate checks all flags and returns every error at once.
func (f *checkFlags) Validate() error {
	errs := []error{cli.Choice("output", f.output, "text", "json")}
	if len(f.files) == 0 {
		errs = append(errs, errors.New("-f FILE is required; - is standard input"))
	}
	for _, pattern := range f.exclude {
		if !check.ValidGlob(pattern) {
			errs = append(errs, fmt.Errorf("--exclude %q is not a pattern; close [ and {, or escape them with \\", pattern))
		}
	}
	if first := slices.Index(f.files, check.Stdin); first >= 0 && slices.Contains(f.files[first+1:], check.Stdin) {
		errs = append(errs, errors.New("-f - is given twice, but standard input can be read only once"))
	}
	return errors.Join(errs...)
}

// settings reads the configuration, or returns the defaults without one.
func (f *checkFlags) settings() (*rules.Settings, error) {
	settings := config.Default()
	if f.config != "" {
		file, err := config.Read(f.config)
		if err != nil {
			return nil, err
		}
		settings = file.Settings
	}
	changed := *settings
	changed.Strict = changed.Strict || f.strict
	return &changed, nil
}

// reportUnchecked reports why the files could not be checked. An ordinary error would exit with exitDenied.
func reportUnchecked(stderr io.Writer, err error) error {
	cli.PrintError(stderr, "webhook", err)
	return cli.ExitError(exitUnchecked)
}

func runCheck(stdin io.Reader, stdout, stderr io.Writer, flags *checkFlags) error {
	settings, err := flags.settings()
	if err != nil {
		return reportUnchecked(stderr, err)
	}
	files := check.New(flags.exclude)
	files.ReadAll(flags.files, stdin)
	report := files.Check(settings)
	if flags.output == "json" {
		err = writeJSON(stdout, report)
	} else {
		err = report.WriteText(stdout, stderr, flags.verbose)
	}
	if err != nil {
		return reportUnchecked(stderr, fmt.Errorf("write the findings: %w", err))
	}
	switch {
	case report.Summary.Errors > 0:
		return cli.ExitError(exitUnchecked)
	case report.Summary.Denied > 0:
		return cli.ExitError(exitDenied)
	}
	return nil
}
