package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// settingFlag is a flag that sets a field of kube-proxy's configuration. If kube-proxy has such a flag, the names are
// equal.
type settingFlag struct{ name, field, usage string }

// aliases are kube-proxy's additional names of flags.
var aliases = map[string]string{
	"hostname-override":    "node",
	"iptables-sync-period": "sync-period", // sets nftables.syncPeriod, too
	"logging-format":       "log-format",
}

// settingFlags are kube-proxy's configuration: a file, overridden by the command line.
type settingFlags struct {
	path string
	// file is the file of --config, after read; nil without one.
	file *config.File

	// flagSet are all flags of the command.
	flagSet *pflag.FlagSet
	// fromFlags is the configuration from the flags alone. Fields without a flag have the default, which --help shows.
	fromFlags *config.Configuration
	// given are the flags on the command line, in order.
	given []givenFlag

	// configuration, settings and messages are the result of file and flags, after Validate: the active configuration
	// with all defaults, the settings derived from it, and a line for each setting without effect here.
	configuration *config.Configuration
	settings      config.Settings
	messages      []string
}

// givenFlag is a settingFlag on the command line.
type givenFlag struct{ name, field, text string }

func (f *settingFlags) register(flags *pflag.FlagSet, settings []settingFlag) {
	f.fromFlags, f.flagSet = config.Default(), flags
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if other, ok := aliases[name]; ok {
			name = other
		}
		return pflag.NormalizedName(name)
	})
	flags.StringVar(&f.path, "config", "",
		"`FILE` with kube-proxy's configuration ("+config.APIVersion+"), and a document of Vicinity ("+config.VicinityKind+
			") for the flags that "+
			"kube-proxy does not have. Flags override the file, unlike in kube-proxy")
	for _, setting := range settings {
		f.add(flags, setting)
	}
}

func (f *settingFlags) add(flags *pflag.FlagSet, setting settingFlag) *pflag.Flag {
	shorthand := ""
	if len(setting.name) == 1 {
		shorthand = setting.name
	}
	flag := flags.VarPF(&settingValue{flags: f, name: setting.name, field: setting.field}, setting.name, shorthand, setting.usage)
	if config.IsBool(setting.field) {
		flag.NoOptDefVal = "true"
	}
	return flag
}

// settingValue is the value of a settingFlag.
type settingValue struct {
	flags       *settingFlags
	name, field string
}

// String returns the value, or the default.
func (v *settingValue) String() string {
	if text := config.Get(v.flags.fromFlags, v.field); text != "0s" {
		return text
	}
	return "" // the default changes nothing
}

// Set sets a value from the command line. Repeated lists are appended.
func (v *settingValue) Set(text string) error {
	whole := text
	if before, ok := v.flags.givenText(v.field); ok && config.IsList(v.field) {
		whole = before + "," + text
	}
	if err := config.Set(v.flags.fromFlags, v.field, whole); err != nil {
		return err
	}
	v.flags.given = append(v.flags.given, givenFlag{v.name, v.field, whole})
	return nil
}

// Type returns the type that pflag shows in --help.
func (v *settingValue) Type() string {
	switch {
	case config.IsBool(v.field):
		return "bool"
	case config.IsText(v.field):
		return "string"
	}
	return "value"
}

// read reads the file, if there is one. An error in the file is not a usage error.
func (f *settingFlags) read() (err error) {
	if f.path != "" {
		if f.file, err = config.Read(f.path, vicinitySettings()); err == nil {
			err = f.applyVicinityFields()
		}
	}
	return err
}

// resolve applies the flags on top of the file and reports all errors.
func (f *settingFlags) resolve() error {
	f.configuration = &config.Configuration{}
	if f.file != nil {
		f.configuration, f.messages = f.file.Configuration.DeepCopy(), slices.Clone(f.file.IgnoredSettings)
	}
	for _, message := range config.GateMessages(f.fromFlags) {
		if !slices.Contains(f.messages, message) {
			f.messages = append(f.messages, message)
		}
	}
	var errs []error
	for _, flag := range f.given {
		errs = append(errs, config.Set(f.configuration, flag.field, flag.text))
	}
	var fieldErrors []config.FieldError
	f.settings, fieldErrors = config.Resolve(f.configuration)
	for _, fieldError := range fieldErrors {
		errs = append(errs, fmt.Errorf("%s: %s", nameOf(fieldError.Field), fieldError.Reason))
	}
	return errors.Join(append(errs, f.validateLinkModes())...)
}

// validateLinkModes rejects a link name on the command line in any mode but its own, because a user who gives the name
// intends that mode. In a file it only causes a message, because there it may be a leftover.
func (f *settingFlags) validateLinkModes() error {
	var errs []error
	for _, flag := range f.given {
		mode, isLink := config.LinkModes[flag.field]
		if activeMode := string(f.configuration.DetectLocalMode); isLink && flag.text != "" && activeMode != mode {
			errs = append(errs, fmt.Errorf("--%s %q has no effect in mode %s; add --detect-local-mode %s", flag.name, flag.text, activeMode, mode))
		}
	}
	return errors.Join(errs...)
}

// givenText returns the text of the flag for a field, if it is on the command line.
func (f *settingFlags) givenText(field string) (text string, ok bool) {
	for _, flag := range f.given {
		if flag.field == field {
			text, ok = flag.text, true
		}
	}
	return text, ok
}

// nameOf returns the name by which a user can set a field: its flag, or else the field in the file.
func nameOf(field string) string {
	for _, setting := range daemonSettings() {
		if setting.field == field {
			return "--" + setting.name
		}
	}
	for _, setting := range config.IgnoredSettings() {
		if setting.Field == field && setting.Flag != "" {
			return "--" + setting.Flag
		}
	}
	return field
}
