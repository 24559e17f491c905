package stack

// Check says what would keep Start from starting and can be known without starting anything: another one that runs in
// the same place, a directory that cannot be written to, a port in use.
func Check(options Options) error {
	h, err := openHome(options.Home)
	if err != nil {
		return err
	}
	defer h.release()
	_, err = choosePorts(options.Port)
	return err
}
