package trigger

// NewDriver makes the driver of a mode, as a Runtime does.
func NewDriver(cfg Config) (Driver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return newDriver(cfg, cfg.logger())
}
