package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	base   = "base"
	former = "base.former" // the base backup that is being replaced
)

// Base makes and checks a base backup and then replaces the earlier one. It must run as the user that PostgreSQL runs
// as, who must own the files.
func (f Folder) Base(ctx context.Context) error {
	unlock, err := f.lockBase()
	if err != nil {
		return noBase(err)
	}
	defer unlock()
	if err := f.makeBase(ctx); err != nil {
		return err
	}
	f.say("Wrote %s.", f.path(base))
	f.say(complete)
	return nil
}

func noBase(err error) error {
	return fmt.Errorf("no base backup was made: %w\nThe earlier base backup, if any, is unchanged", err)
}

// lockBase locks the folder and cleans up after a Base that was interrupted: an incomplete backup is removed, and the
// earlier one gets its name back if the new one does not have it yet.
func (f Folder) lockBase() (unlock func(), err error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("run this as the user that PostgreSQL runs as: sudo -u postgres …")
	}
	if unlock, err = lock(f.Dir); err != nil {
		return nil, err
	}
	if err := f.settle(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func (f Folder) settle() error {
	if err := os.RemoveAll(f.path(base + part)); err != nil {
		return err
	}
	if _, err := os.Stat(f.path(base)); errors.Is(err, os.ErrNotExist) {
		if err := os.Rename(f.path(former), f.path(base)); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(f.path(former))
}

func (f Folder) makeBase(ctx context.Context) error {
	made := f.path(base + part)
	if err := f.writeBase(ctx, made); err != nil {
		return errors.Join(noBase(err), os.RemoveAll(made))
	}
	err := os.Rename(f.path(base), f.path(former))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = os.Rename(made, f.path(base))
	}
	if err != nil {
		return errors.Join(noBase(err), f.settle())
	}
	if err := sync(f.Dir); err != nil {
		return fmt.Errorf("the new base backup has replaced the earlier one, which is %s: %w", f.path(former), err)
	}
	if err := os.RemoveAll(f.path(former)); err != nil {
		return fmt.Errorf("the new base backup has replaced the earlier one, which could not be removed: %w", err)
	}
	return nil
}

func (f Folder) writeBase(ctx context.Context, made string) error {
	major, err := serverVersion(ctx, adminService)
	if err != nil {
		return err
	}
	tools, err := find(ctx, major, sameVersion, "pg_basebackup")
	if err != nil {
		return err
	}
	err = tools.do(ctx, "pg_basebackup", "--no-password", "--dbname="+adminService, "--pgdata="+made,
		"--checkpoint=fast")
	if err != nil {
		return err
	}
	return checkBase(ctx, made)
}

// checkBase compares a base backup with its manifest, and reads its WAL.
func checkBase(ctx context.Context, dir string) error {
	major, err := versionOf(dir)
	if err != nil {
		return explainPermission(err)
	}
	tools, err := find(ctx, major, sameVersion, "pg_verifybackup")
	if err != nil {
		return err
	}
	if err := tools.do(ctx, "pg_verifybackup", "--quiet", dir); err != nil {
		return fmt.Errorf("%s is not a complete base backup: %w", filepath.Base(dir), err)
	}
	return nil
}

// versionOf returns the major version of the server whose data a folder has.
func versionOf(dir string) (int, error) {
	content, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(content)))
}

// VerifyBase checks the base backup. It must run as the user who owns it.
func (f Folder) VerifyBase(ctx context.Context) error {
	unlock, err := f.lockBase()
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkBase(ctx, f.path(base)); err != nil {
		return err
	}
	f.say("%s is complete.", f.path(base))
	f.say(complete)
	return nil
}
