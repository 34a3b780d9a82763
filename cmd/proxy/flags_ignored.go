package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// compatFlags are the flags of kube-proxy that have no effect here. They are accepted but hidden, so that kube-proxy's
// command line works unchanged.
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

// Validate rejects values that would disable required behaviour.
func (f *compatFlags) Validate() error {
	var errs []error
	for _, flag := range *f {
		if flag.Changed && flag.Rejected != "" && flag.Value.String() == flag.Rejected {
			errs = append(errs, fmt.Errorf("--%s %s: %s", flag.Name, flag.Rejected, flag.RejectionReason))
		}
	}
	return errors.Join(errs...)
}

// add registers a flag. If it sets a field, its value is validated and appears in /configz.
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

// messages returns a line for each of the flags on the command line.
func (f *compatFlags) messages() []string {
	var notes []string
	for _, flag := range *f {
		if flag.Changed {
			notes = append(notes, "--"+flag.Name+": "+flag.Usage)
		}
	}
	return notes
}

// replacedFlags are flags of kube-proxy for which there are separate commands here.
type replacedFlags struct{ cleanup, version *pflag.Flag }

func (f *replacedFlags) register(flags *pflag.FlagSet) {
	flags.Bool("cleanup", false, "removes our tables: see 'proxy cleanup'")
	flags.String("version", "false", "prints the version: see 'proxy version'")
	f.cleanup, f.version = flags.Lookup("cleanup"), flags.Lookup("version")
	f.version.NoOptDefVal = "true"
	f.cleanup.Hidden, f.version.Hidden = true, true
}

// Validate rejects the flags with an error that names the commands to use.
func (f *replacedFlags) Validate() error {
	var errs []error
	for _, flag := range []*pflag.Flag{f.cleanup, f.version} {
		if flag.Value.String() != "false" {
			errs = append(errs, fmt.Errorf("--%s is a command of its own: 'proxy %s'", flag.Name, flag.Name))
		}
	}
	return errors.Join(errs...)
}
