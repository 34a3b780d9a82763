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

const checkLong = `Judge the Services and Namespaces in files by the rules that the webhook has for new objects. No cluster is needed.

FILE is a YAML or JSON file, with several documents and Lists in it if need be; or - for standard input; or a folder, of which
every .yaml, .yml and .json file is read, those in its subfolders too. Templates must be rendered first.

Files that hold no objects yet are skipped and counted: kustomizations, and what they name that is no resource; Helm charts (folders
with Chart.yaml), of which Chart.yaml, values and templates/; JSON patches; and what --exclude matches. -v names them. The folders of each
file and above it are asked, so that a file is the same whether its folder is given or its name. Patches of Services and Namespaces that a
kustomization names or holds, and the annotations and labels that it gives to every object, are checked in part: an annotation or label
that is wrong whatever the rest is. To check all of it, check what 'kubectl kustomize' and 'helm template' print.

Each line of the output is one finding: where it is, the object, the field, what is wrong and how to mend it, the rule's id, and what
follows from it. The rules are listed by 'webhook rules'. The last line, on standard error, counts.

  deploy/web.yaml:7: Service shop/web: metadata.annotations[vicinity.dev/topology-keys]: ... [SVC003] (deny)

A finding (error) is something that could not be checked: text that is no YAML, a field that is set twice or of the wrong type, or a
field that API servers do not know and would drop, if it looks as though it were to say something of topology. What API servers refuse
by themselves is not reported again.

If there are Nodes in the files, topology keys are compared with their labels. Objects of other kinds are skipped, as are those that
carry the label vicinity.dev/admission: disabled, and Services of a Namespace in the files that carries it.

The exit status is 0 if nothing is denied, 1 if something is, and 2 if something could not be checked or the command line is wrong.

-o json prints one document: "findings", each with file, line, kind, namespace, name, rule, action (deny, warn or error), path and
message; "skipped", the files that were, each with file, role and reason; and "summary", with the numbers of objects checked and
skipped, of patches, of those denied, of warnings, errors and filesSkipped. All of these fields are always there. A line is 0 if it
is about a file as a whole, a rule is "" for an error.`

func newCheck() *cobra.Command {
	var flags checkFlags
	command := &cobra.Command{
		Use:   "check -f FILE... [flags]",
		Short: "Judge Services and Namespaces in files by the webhook's rules",
		Long:  checkLong,
		Example: `  # everything below a folder
  webhook check -f deploy/

  # without values that are in no chart's folder
  webhook check -f deploy/ --exclude 'values*.yaml' --exclude 'deploy/**/testdata'

  # an overlay, as it would be applied
  kubectl kustomize deploy/prod | webhook check -f -

  # a chart, as it would be installed, by the rules of a cluster
  helm template shop ./chart | webhook check --config config.yaml -f -

  # what a live cluster holds
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
		"`GLOB` of files and folders to pass over: ?, * within a name, ** across folders, [a-z], {a,b}. It may begin at any folder of a path: "+
			"'values*.yaml', 'overlays/dev', 'deploy/**/test'. May be repeated")
	flags.StringVar(&f.config, "config", "",
		"`FILE` with a TopologyAdmissionConfiguration, the one that the webhook has. Without it every rule has its own action")
	flags.BoolVar(&f.strict, "strict", false,
		"deny what is warned of where a rule is stricter in strict mode, as the file's 'strict: true' does")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "name each file that is skipped, on standard error, and say why")
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text or json")
}

// Validate checks all flags and returns every error at once.
func (f *checkFlags) Validate() error {
	errs := []error{cli.Choice("output", f.output, "text", "json")}
	if len(f.files) == 0 {
		errs = append(errs, errors.New("-f FILE is required, the file to check; - is standard input"))
	}
	for _, pattern := range f.exclude {
		if !check.ValidGlob(pattern) {
			errs = append(errs, fmt.Errorf("--exclude %q is not a pattern; write [ and { with their ends, or a \\ before them", pattern))
		}
	}
	if first := slices.Index(f.files, check.Stdin); first >= 0 && slices.Contains(f.files[first+1:], check.Stdin) {
		errs = append(errs, errors.New("-f - is given twice, and standard input can be read once"))
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

// checkErrors reports why the files could not be checked. An ordinary error would exit with exitDenied.
func checkErrors(stderr io.Writer, err error) error {
	cli.PrintError(stderr, "webhook", err)
	return cli.ExitError(exitUnchecked)
}

func runCheck(stdin io.Reader, stdout, stderr io.Writer, flags *checkFlags) error {
	settings, err := flags.settings()
	if err != nil {
		return checkErrors(stderr, err)
	}
	files := check.New(flags.exclude)
	files.ReadAll(flags.files, stdin)
	found := files.Check(settings)
	if flags.output == "json" {
		err = writeJSON(stdout, found)
	} else {
		err = found.WriteText(stdout, stderr, flags.verbose)
	}
	if err != nil {
		return checkErrors(stderr, fmt.Errorf("writing the findings: %w", err))
	}
	switch {
	case found.Summary.Errors > 0:
		return cli.ExitError(exitUnchecked)
	case found.Summary.Denied > 0:
		return cli.ExitError(exitDenied)
	}
	return nil
}
