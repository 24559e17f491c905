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
	As            string `enum:"claude,claude-code,chatgpt,codex,cursor,gemini-cli,opencode,vscode,generic" default:"generic" help:"Client to replay: ${enum}."`
	URL           string `arg:"" name:"url" help:"URL of the MCP server, as entered into the client."`
	ClientID      string `name:"client-id" placeholder:"ID" help:"Use this registered client instead of the client's metadata document."`
	RedirectURI   string `name:"redirect-uri" placeholder:"URI" help:"Use this redirect URI instead of the client's usual one."`
	Browser       bool   `help:"Consent in a browser on this computer."`
	CallbackStdin bool   `name:"callback-stdin" help:"Consent in any browser, and paste the final address."`
	Email         string `placeholder:"ADDRESS" help:"Sign in and consent as this user of Almoner, without a browser."`
	PasswordFile  string `name:"password-file" placeholder:"FILE" help:"File that contains the user's password, or - for standard input."`
	Workspace     string `placeholder:"NAME" help:"Workspace to choose if the page asks for one."`
	Replay        bool   `help:"Present a used refresh token again, and check that its grant ends."`
	JSON          bool   `name:"json" help:"Write JSON at the end."`
}

// Run writes its findings to standard output. Instructions to the user go to standard error.
func (d doctorCommand) Run(ctx context.Context) error {
	options := doctor.Options{
		URL:         d.URL,
		As:          d.As,
		ClientID:    d.ClientID,
		RedirectURI: d.RedirectURI,
		Browser:     d.Browser,
		Email:       d.Email,
		Workspace:   d.Workspace,
		Replay:      d.Replay,
		Prompt:      func(text string) { fmt.Fprintln(os.Stderr, "\n"+text) },
	}
	if d.CallbackStdin {
		options.Pasted = os.Stdin
	}
	if err := d.readPassword(&options); err != nil {
		return exit{err, exitUsage}
	}
	if !d.JSON {
		options.Tell = (&doctor.Text{Out: os.Stdout, Head: "As " + d.As + ": " + d.URL}).Tell
	}
	report, err := doctor.Run(ctx, options)
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

func (d doctorCommand) readPassword(options *doctor.Options) error {
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
	options.Password = credential.Secret(strings.TrimRight(string(content), "\r\n"))
	if options.Password == "" {
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
