package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
)

// ignoredFlags are the flags of kube-proxy that have no meaning here. They are accepted but hidden, so that its command
// line works as it is.
type ignoredFlags []ignoredFlag

type ignoredFlag struct {
	*pflag.Flag
	config.Meaningless
}

func (f *ignoredFlags) register(flags *pflag.FlagSet, settings *settingFlags) {
	for _, setting := range config.WithoutMeaning() {
		if setting.Flag != "" {
			flag := f.add(flags, settings, setting)
			flag.Hidden = true
			*f = append(*f, ignoredFlag{flag, setting})
		}
	}
}

// Validate refuses the values that would forbid something.
func (f *ignoredFlags) Validate() error {
	var errs []error
	for _, flag := range *f {
		if flag.Changed && flag.Refused != "" && flag.Value.String() == flag.Refused {
			errs = append(errs, fmt.Errorf("--%s %s: %s", flag.Name, flag.Refused, flag.WhyRefused))
		}
	}
	return errors.Join(errs...)
}

// add registers a flag. Where it is a field's, its text is checked, and /configz will show it.
func (f *ignoredFlags) add(flags *pflag.FlagSet, settings *settingFlags, setting config.Meaningless) *pflag.Flag {
	if setting.Field != "" && config.IsSettable(setting.Field) {
		return settings.add(flags, settingFlag{setting.Flag, setting.Field, setting.Why})
	}
	if setting.Refused != "" {
		flags.Int32(setting.Flag, 0, setting.Why)
	} else {
		flags.String(setting.Flag, "", setting.Why)
	}
	return flags.Lookup(setting.Flag)
}

// notes returns a line for each of the flags that is given.
func (f *ignoredFlags) notes() []string {
	var notes []string
	for _, flag := range *f {
		if flag.Changed {
			notes = append(notes, "--"+flag.Name+": "+flag.Usage)
		}
	}
	return notes
}

// insteadFlags make kube-proxy do something other than run. Here each of these is a command of its own.
type insteadFlags struct{ cleanup, version *pflag.Flag }

func (f *insteadFlags) register(flags *pflag.FlagSet) {
	flags.Bool("cleanup", false, "removes our tables: see 'proxy cleanup'")
	flags.String("version", "false", "prints the version: see 'proxy version'")
	f.cleanup, f.version = flags.Lookup("cleanup"), flags.Lookup("version")
	f.version.NoOptDefVal = "true"
	f.cleanup.Hidden, f.version.Hidden = true, true
}

// Validate refuses the flags, and names the commands to use instead.
func (f *insteadFlags) Validate() error {
	var errs []error
	for _, flag := range []*pflag.Flag{f.cleanup, f.version} {
		if flag.Value.String() != "false" {
			errs = append(errs, fmt.Errorf("--%s is a command of its own: 'proxy %s'", flag.Name, flag.Name))
		}
	}
	return errors.Join(errs...)
}
