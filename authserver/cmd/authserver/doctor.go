package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Exit statuses of a command that failed.
const (
	exitFault = 1
	exitUsage = 2
)

// maxPasswordFile is far longer than any password, in bytes.
const maxPasswordFile = 4 << 10

// doctorCommand needs no configuration and no database: it makes the requests of a connector.
type doctorCommand struct {
	doctor.Options
	JSON bool `name:"json" help:"Write JSON at the end."`
}

// Run writes its findings to standard output. Instructions to the user go to standard error.
func (d doctorCommand) Run(ctx context.Context) error {
	d.Prompt = func(text string) { fmt.Fprintln(os.Stderr, "\n"+text) }
	if d.CallbackStdin {
		d.Pasted = os.Stdin
	}
	if err := d.readPassword(); err != nil {
		return exit{err, exitUsage}
	}
	if !d.JSON {
		d.Tell = (&doctor.Text{Out: os.Stdout, Head: "As " + d.As + ": " + d.URL}).Tell
	}
	report, err := doctor.Run(ctx, d.Options)
	if errors.Is(err, doctor.ErrUsage) {
		return exit{err, exitUsage}
	}
	if err != nil {
		return err
	}
	if d.JSON {
		if err := report.JSON(os.Stdout); err != nil {
			return err
		}
	} else {
		report.End(os.Stdout)
	}
	if report.Verdict == doctor.Fail || ctx.Err() != nil {
		return exit{nil, exitFault}
	}
	return nil
}

func (d *doctorCommand) readPassword() error {
	if d.PasswordFile == "" {
		return nil
	}
	if d.PasswordFile == "-" && d.CallbackStdin {
		return errors.New("--password-file - and --callback-stdin cannot both read standard input")
	}
	file := os.Stdin
	if d.PasswordFile != "-" {
		opened, err := os.Open(d.PasswordFile)
		if err != nil {
			return fmt.Errorf("read the password: %w", err)
		}
		defer func() { _ = opened.Close() }()
		file = opened
	} else if isTerminal(file) {
		return errors.New("standard input is a terminal: pass the password in a file")
	}
	content, err := io.ReadAll(io.LimitReader(file, maxPasswordFile))
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	d.Password = credential.Secret(strings.TrimRight(string(content), "\r\n"))
	if d.Password == "" {
		return errors.New("the password file is empty")
	}
	return nil
}

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// exit is an error with the exit status. If it holds no error, everything was already printed.
type exit struct {
	error
	status int
}

func (e exit) Unwrap() error { return e.error }
