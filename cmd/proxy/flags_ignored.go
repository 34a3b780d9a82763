package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// compatFlags are the flags of kube-proxy that have no meaning here. They are accepted but hidden, so that its command
// line works as it is.
type compatFlags []ignoredFlag

type ignoredFlag struct {
	*pflag.Flag
	config.IgnoredSetting
}

func (f *compatFlags) register(flags *pflag.FlagSet, settings *settingFlags) {
	for _, setting := range config.IgnoredSettings() {
		if setting.Flag != "" {
			flag := f.add(flags, settings, setting)
			flag.Hidden = true
			*f = append(*f, ignoredFlag{flag, setting})
		}
	}
}

// Validate refuses the values that would forbid something.
func (f *compatFlags) Validate() error {
	var errs []error
	for _, flag := range *f {
		if flag.Changed && flag.Rejected != "" && flag.Value.String() == flag.Rejected {
			errs = append(errs, fmt.Errorf("--%s %s: %s", flag.Name, flag.Rejected, flag.RejectionReason))
		}
	}
	return errors.Join(errs...)
}

// add registers a flag. Where it is a field's, its text is checked, and /configz will show it.
func (f *compatFlags) add(flags *pflag.FlagSet, settings *settingFlags, setting config.IgnoredSetting) *pflag.Flag {
	if setting.Field != "" && config.IsSettable(setting.Field) {
		return settings.add(flags, settingFlag{setting.Flag, setting.Field, setting.Reason})
	}
	if setting.Rejected != "" {
		flags.Int32(setting.Flag, 0, setting.Reason)
	} else {
		flags.String(setting.Flag, "", setting.Reason)
	}
	return flags.Lookup(setting.Flag)
}

// messages returns a line for each of the flags that is given.
func (f *compatFlags) messages() []string {
	var notes []string
	for _, flag := range *f {
		if flag.Changed {
			notes = append(notes, "--"+flag.Name+": "+flag.Usage)
		}
	}
	return notes
}

// replacedFlags make kube-proxy do something other than run. Here each of these is a command of its own.
type replacedFlags struct{ cleanup, version *pflag.Flag }

func (f *replacedFlags) register(flags *pflag.FlagSet) {
	flags.Bool("cleanup", false, "removes our tables: see 'proxy cleanup'")
	flags.String("version", "false", "prints the version: see 'proxy version'")
	f.cleanup, f.version = flags.Lookup("cleanup"), flags.Lookup("version")
	f.version.NoOptDefVal = "true"
	f.cleanup.Hidden, f.version.Hidden = true, true
}

// Validate refuses the flags, and names the commands to use instead.
func (f *replacedFlags) Validate() error {
	var errs []error
	for _, flag := range []*pflag.Flag{f.cleanup, f.version} {
		if flag.Value.String() != "false" {
			errs = append(errs, fmt.Errorf("--%s is a command of its own: 'proxy %s'", flag.Name, flag.Name))
		}
	}
	return errors.Join(errs...)
}
