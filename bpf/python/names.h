/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
/*
 * The functions that python/other.h compiles twice, once for the current task and once
 * for any. The first inclusion defines their other names, the second undefines them. A
 * function that is missing here does not compile.
 */
#ifndef PYTHON_RENAMED
#define PYTHON_RENAMED
#define user_copy other_user_copy
#define user_read other_user_read
#define user_read_words other_user_read_words
#define user_read_text other_user_read_text
#define user_fault_in other_user_fault_in
#define python_read_auxv other_python_read_auxv
#define python_header_step other_python_header_step
#define python_dynamic_step other_python_dynamic_step
#define python_read_dynamic other_python_read_dynamic
#define python_chain_step other_python_chain_step
#define python_chain_start other_python_chain_start
#define python_find_symbol other_python_find_symbol
#define python_read_module other_python_read_module
#define python_module_step other_python_module_step
#define python_first_module other_python_first_module
#define python_find_runtime other_python_find_runtime
#define python_identify other_python_identify
#define python_in_state other_python_in_state
#define python_state_ran other_python_state_ran
#define python_is_its_state other_python_is_its_state
#define python_entry_step other_python_entry_step
#define python_thread_rank other_python_thread_rank
#define python_state_seen other_python_state_seen
#define python_thread_step other_python_thread_step
#define python_thread_read other_python_thread_read
#define python_thread_proved other_python_thread_proved
#define python_thread_prove other_python_thread_prove
#define python_thread_link other_python_thread_link
#define python_thread_interpreter other_python_thread_interpreter
#define python_thread_frame other_python_thread_frame
#define python_wants_entries other_python_wants_entries
#define python_entered other_python_entered
#define python_entries_begin other_python_entries_begin
#define python_entries_add other_python_entries_add
#define python_entries_end other_python_entries_end
#define python_location_byte other_python_location_byte
#define python_pair other_python_pair
#define python_line_step other_python_line_step
#define python_line other_python_line
#define python_read_string other_python_read_string
#define python_is_self other_python_is_self
#define python_cell_step other_python_cell_step
#define python_argument_type other_python_argument_type
#define python_method_match other_python_method_match
#define python_method_dict other_python_method_dict
#define python_is_nested other_python_is_nested
#define python_module_function other_python_module_function
#define python_method_step other_python_method_step
#define python_method_name other_python_method_name
#define python_mix_qualname other_python_mix_qualname
#define python_class other_python_class
#define python_symbol_id other_python_symbol_id
#define python_has_room other_python_has_room
#define python_symbol_key other_python_symbol_key
#define python_symbol other_python_symbol
#define python_mix other_python_mix
#define python_mix_words other_python_mix_words
#define python_mix_user other_python_mix_user
#define python_mix_object other_python_mix_object
#define python_mix_text other_python_mix_text
#define python_class_hash other_python_class_hash
#define python_function_version other_python_function_version
#define python_witness other_python_witness
#define python_numbered other_python_numbered
#define python_version other_python_version
#define python_recent_begin other_python_recent_begin
#define python_recent_of other_python_recent_of
#define python_recall other_python_recall
#define python_met other_python_met
#define python_look_up other_python_look_up
#define python_window_move other_python_window_move
#define python_window_frame other_python_window_frame
#define python_dict_version other_python_dict_version
#define python_owned other_python_owned
#define python_same other_python_same
#define python_read_code other_python_read_code
#define python_check other_python_check
#define python_tail other_python_tail
#define python_string_tail other_python_string_tail
#define python_table_tail other_python_table_tail
#define python_resolve other_python_resolve
#define python_keep other_python_keep
#define python_read_frame other_python_read_frame
#define python_read_old_code other_python_read_old_code
#define python_outermost other_python_outermost
#define python_frame_step other_python_frame_step
#define python_walk_frames other_python_walk_frames
#define python_debug_step other_python_debug_step
#define python_table_step other_python_table_step
#define python_load_offsets other_python_load_offsets
#define python_identify_version other_python_identify_version
#define python_inherit other_python_inherit
#define python_process_gone other_python_process_gone
#define python_adopt other_python_adopt
#define python_search_process other_python_search_process
#define python_know_process other_python_know_process
#define python_try other_python_try
#define python_unwind other_python_unwind
#define python_retry_step other_python_retry_step
#define python_unwind_sleepable other_python_unwind_sleepable
#define python_gil other_python_gil
#else
#undef PYTHON_RENAMED
#undef user_copy
#undef user_read
#undef user_read_words
#undef user_read_text
#undef user_fault_in
#undef python_read_auxv
#undef python_header_step
#undef python_dynamic_step
#undef python_read_dynamic
#undef python_chain_step
#undef python_chain_start
#undef python_find_symbol
#undef python_read_module
#undef python_module_step
#undef python_first_module
#undef python_find_runtime
#undef python_identify
#undef python_in_state
#undef python_state_ran
#undef python_is_its_state
#undef python_entry_step
#undef python_thread_rank
#undef python_state_seen
#undef python_thread_step
#undef python_thread_read
#undef python_thread_proved
#undef python_thread_prove
#undef python_thread_link
#undef python_thread_interpreter
#undef python_thread_frame
#undef python_wants_entries
#undef python_entered
#undef python_entries_begin
#undef python_entries_add
#undef python_entries_end
#undef python_location_byte
#undef python_pair
#undef python_line_step
#undef python_line
#undef python_read_string
#undef python_is_self
#undef python_cell_step
#undef python_argument_type
#undef python_method_match
#undef python_method_dict
#undef python_is_nested
#undef python_module_function
#undef python_method_step
#undef python_method_name
#undef python_mix_qualname
#undef python_class
#undef python_symbol_id
#undef python_has_room
#undef python_symbol_key
#undef python_symbol
#undef python_mix
#undef python_mix_words
#undef python_mix_user
#undef python_mix_object
#undef python_mix_text
#undef python_class_hash
#undef python_function_version
#undef python_witness
#undef python_numbered
#undef python_version
#undef python_recent_begin
#undef python_recent_of
#undef python_recall
#undef python_met
#undef python_look_up
#undef python_window_move
#undef python_window_frame
#undef python_dict_version
#undef python_owned
#undef python_same
#undef python_read_code
#undef python_check
#undef python_tail
#undef python_string_tail
#undef python_table_tail
#undef python_resolve
#undef python_keep
#undef python_read_frame
#undef python_read_old_code
#undef python_outermost
#undef python_frame_step
#undef python_walk_frames
#undef python_debug_step
#undef python_table_step
#undef python_load_offsets
#undef python_identify_version
#undef python_inherit
#undef python_process_gone
#undef python_adopt
#undef python_search_process
#undef python_know_process
#undef python_try
#undef python_unwind
#undef python_retry_step
#undef python_unwind_sleepable
#undef python_gil
#endif
